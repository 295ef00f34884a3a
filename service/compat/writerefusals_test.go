package compat

import (
	"context"
	"slices"
	"strings"
	"testing"

	catalog "github.com/hashicorp/consul/proto-public/pbcatalog/v2beta1"
	"github.com/hashicorp/consul/proto-public/pbresource"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// writing makes a call with a modified copy of the case's resource.
func writing(write writeCall, change func(*pbresource.Resource)) func(context.Context, *server, *pbresource.Resource) error {
	return func(ctx context.Context, s *server, at *pbresource.Resource) error {
		at.Version = ""
		change(at)
		return write(ctx, s, at)
	}
}

// writeCall is a call with a resource.
type writeCall func(context.Context, *server, *pbresource.Resource) error

// incomplete returns the rejections that Write and MutateAndValidate have in common.
func incomplete(write writeCall) []refusal {
	of := func(ctx context.Context, s *server, id *pbresource.ID) error {
		res := newService("", "10.0.0.1")
		res.Id = id
		return write(ctx, s, res)
	}
	invalid := func(name, text string, change func(*pbresource.Resource)) refusal {
		return refusal{name: name, code: codes.InvalidArgument, text: text, call: writing(write, change)}
	}
	return slices.Concat(malformed("resource.id", of), misplaced(of), []refusal{
		{name: "no resource", code: codes.InvalidArgument, text: "resource is required",
			call: func(ctx context.Context, s *server, _ *pbresource.Resource) error { return write(ctx, s, nil) }},
		invalid("owner without type", "resource.owner.type is required", func(res *pbresource.Resource) {
			res.Owner = &pbresource.ID{Name: "o"}
		}),
		invalid("owner's name", "resource.owner.name invalid: …", func(res *pbresource.Resource) {
			res.Owner = &pbresource.ID{Type: serviceType, Name: "O"}
		}),
		invalid("payload of another message", "resource.data is of wrong type…", func(res *pbresource.Resource) {
			res.Data = packed(&catalog.Workload{})
		}),
		invalid("payload that does not decode", "resource.data invalid: …", func(res *pbresource.Resource) {
			res.Data = &anypb.Any{TypeUrl: res.GetData().GetTypeUrl(), Value: []byte{0xff}}
		}),
		invalid("refused by Validate", "node_name is required", func(res *pbresource.Resource) {
			res.Id.Type, res.Data = workloadType, packed(&catalog.Workload{})
		}),
		{name: "refused by Mutate", code: codes.Internal, text: "…", call: writing(write, func(res *pbresource.Resource) {
			res.Id.Type, res.Data = workloadType, packed(&catalog.Workload{NodeName: "n", Identity: "none"})
		})},
		invalid("namespace missing", "tenancy not found: …", func(res *pbresource.Resource) {
			res.Id.Tenancy = &pbresource.Tenancy{Namespace: "missing"}
		}),
		invalid("namespace marked for deletion", "tenancy marked for deletion: …", func(res *pbresource.Resource) {
			res.Id.Tenancy = &pbresource.Tenancy{Namespace: "leaving"}
		}),
		{name: "not allowed", code: codes.PermissionDenied, text: mayNotWrite,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return write(as(ctx, readerToken), s, at)
			}},
		{name: "denied without a stored resource", code: codes.PermissionDenied, text: mayNotWrite,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return write(as(ctx, readerToken), s, inTenancy(at, "missing", "default"))
			}},
		{name: "token not known", code: codes.Unauthenticated, text: "unauthenticated: …",
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return write(as(ctx, unknownToken), s, at)
			}},
	})
}

func TestMutateAndValidateRefuses(t *testing.T) {
	refused(t, incomplete(func(ctx context.Context, s *server, res *pbresource.Resource) error {
		_, err := s.MutateAndValidate(ctx, &pbresource.MutateAndValidateRequest{Resource: res})
		return err
	}))
}

func TestWriteRefuses(t *testing.T) {
	write := func(ctx context.Context, s *server, res *pbresource.Resource) error {
		_, err := s.Write(ctx, &pbresource.WriteRequest{Resource: res})
		return err
	}
	given := newService("", "10.0.0.1")
	finalized := copied(given, func(res *pbresource.Resource) { res.Metadata = map[string]string{"finalizers": "a b"} })
	statusWritten := map[string]*pbresource.Status{"k": {ObservedGeneration: otherUid}}
	refused(t, append(incomplete(write), []refusal{
		// Nothing is stored.
		{name: "create with a status", code: codes.InvalidArgument, text: "resource.status …",
			call: writing(write, func(res *pbresource.Resource) { res.Status = statusWritten })},
		{name: "create marked for deletion", code: codes.InvalidArgument, text: "…",
			call: writing(write, func(res *pbresource.Resource) {
				res.Metadata = map[string]string{"deletionTimestamp": "2024-01-01T00:00:00Z"}
			})},
		{name: "create with an absent owner", code: codes.InvalidArgument, text: "resource.owner does not exist",
			call: writing(write, func(res *pbresource.Resource) {
				res.Owner = &pbresource.ID{Type: serviceType, Name: "nobody", Tenancy: &pbresource.Tenancy{Partition: "default", Namespace: "default"}}
			})},
		{name: "create with a uid", code: codes.FailedPrecondition, text: wrongUid,
			call: writing(write, func(res *pbresource.Resource) { res.Id.Uid = otherUid })},
		{name: "create with a version", code: codes.Aborted, text: casFailed,
			call: writing(write, func(res *pbresource.Resource) { res.Version = "1" })},
		{name: "too large", code: codes.ResourceExhausted, text: "…",
			call: writing(write, func(res *pbresource.Resource) {
				res.Data = packed(&catalog.Service{VirtualIps: []string{strings.Repeat("1", 1<<20)}})
			})},
		// A resource is stored.
		{name: "another version", given: given, code: codes.Aborted, text: casFailed,
			call: writing(write, func(res *pbresource.Resource) { res.Version = "1" })},
		{name: "another uid", given: given, code: codes.FailedPrecondition, text: wrongUid,
			call: writing(write, func(res *pbresource.Resource) { res.Id.Uid = otherUid })},
		{name: "another uid and another version", given: given, code: codes.FailedPrecondition, text: wrongUid,
			call: writing(write, func(res *pbresource.Resource) { res.Id.Uid, res.Version = otherUid, "1" })},
		{name: "another owner", given: given, code: codes.InvalidArgument, text: "owner cannot be changed",
			call: writing(write, func(res *pbresource.Resource) {
				res.Owner = &pbresource.ID{Type: serviceType, Name: "o", Uid: otherUid, Tenancy: res.GetId().GetTenancy()}
			})},
		{name: "another status", given: given, code: codes.InvalidArgument, text: "resource.status …",
			call: writing(write, func(res *pbresource.Resource) { res.Status = statusWritten })},
		{name: "mark and change", given: finalized, code: codes.InvalidArgument, text: "…",
			call: writing(write, func(res *pbresource.Resource) {
				res.Metadata["deletionTimestamp"], res.Metadata["x"] = "2024-01-01T00:00:00Z", "y"
			})},
		{name: "tombstone", code: codes.InvalidArgument, text: "resource type internal.v1.Tombstone …",
			call: writing(write, func(res *pbresource.Resource) {
				res.Id.Type = tombstoneType
				res.Data = packed(&pbresource.Tombstone{Owner: newService("o", "").GetId()})
			})},
	}...))
}

func TestWriteStatusRefuses(t *testing.T) {
	valid := func(id *pbresource.ID) *pbresource.WriteStatusRequest {
		return &pbresource.WriteStatusRequest{Id: id, Key: "k", Status: &pbresource.Status{ObservedGeneration: otherUid}}
	}
	of := func(ctx context.Context, s *server, id *pbresource.ID) error {
		_, err := s.WriteStatus(ctx, valid(id))
		return err
	}
	given := newService("", "10.0.0.1")
	with := func(name string, code codes.Code, text string, change func(*pbresource.WriteStatusRequest)) refusal {
		return refusal{name: name, given: given, code: code, text: text,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				_, err := s.WriteStatus(ctx, copied(valid(at.GetId()), change))
				return err
			}}
	}
	about := func(ref *pbresource.Reference) func(*pbresource.WriteStatusRequest) {
		return func(r *pbresource.WriteStatusRequest) {
			r.Status.Conditions = []*pbresource.Condition{{Type: "fine"}, {Type: "t", Resource: ref}}
		}
	}
	invalid := codes.InvalidArgument
	refused(t, slices.Concat(malformed("id", of), misplaced(of), []refusal{
		with("no uid", invalid, "id.uid is required", func(r *pbresource.WriteStatusRequest) { r.Id.Uid = "" }),
		with("no key", invalid, "key is required", func(r *pbresource.WriteStatusRequest) { r.Key = "" }),
		with("no status", invalid, "status is required", func(r *pbresource.WriteStatusRequest) { r.Status = nil }),
		with("no observed generation", invalid, "status.observed_generation is required",
			func(r *pbresource.WriteStatusRequest) { r.Status.ObservedGeneration = "" }),
		with("observed generation that is not a ULID", invalid, "status.observed_generation …",
			func(r *pbresource.WriteStatusRequest) { r.Status.ObservedGeneration = "1" }),
		with("time of the update", invalid, "status.updated_at is automatically set and cannot be provided",
			func(r *pbresource.WriteStatusRequest) { r.Status.UpdatedAt = timestamppb.Now() }),
		with("condition without type", invalid, "status.conditions[0].type is required",
			func(r *pbresource.WriteStatusRequest) { r.Status.Conditions = []*pbresource.Condition{{}} }),
		with("reference without type", invalid, "status.conditions[1].resource.type is required",
			about(&pbresource.Reference{Name: "n", Tenancy: &pbresource.Tenancy{}})),
		with("reference without tenancy", invalid, "status.conditions[1].resource.tenancy is required",
			about(&pbresource.Reference{Name: "n", Type: serviceType})),
		with("reference's name", invalid, "status.conditions[1].resource.name invalid: …",
			about(&pbresource.Reference{Name: "N", Type: serviceType, Tenancy: &pbresource.Tenancy{}})),
		with("another uid", codes.NotFound, notFound, func(r *pbresource.WriteStatusRequest) { r.Id.Uid = otherUid }),
		with("another version", codes.Aborted, casFailed, func(r *pbresource.WriteStatusRequest) { r.Version = "1" }),
		with("another group version", invalid, "resource …", func(r *pbresource.WriteStatusRequest) { r.Id.Type = serviceV1 }),
		with("namespace missing", codes.NotFound, "tenancy not found: …",
			func(r *pbresource.WriteStatusRequest) { r.Id.Tenancy = &pbresource.Tenancy{Namespace: "missing"} }),
		{name: "absent", code: codes.NotFound, text: notFound, call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
			return of(ctx, s, copied(at.GetId(), func(id *pbresource.ID) { id.Uid = otherUid }))
		}},
		{name: "not allowed", given: given, code: codes.PermissionDenied, text: mayNotWrite,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return of(as(ctx, readerToken), s, at.GetId())
			}},
	}))
}

func TestDeleteRefuses(t *testing.T) {
	del := func(ctx context.Context, s *server, id *pbresource.ID) error {
		_, err := s.Delete(ctx, &pbresource.DeleteRequest{Id: id})
		return err
	}
	given := newService("", "10.0.0.1")
	stale := func(change func(*pbresource.ID)) func(context.Context, *server, *pbresource.Resource) error {
		return func(ctx context.Context, s *server, at *pbresource.Resource) error {
			_, err := s.Delete(ctx, &pbresource.DeleteRequest{Id: copied(at.GetId(), change), Version: "1"})
			return err
		}
	}
	refused(t, slices.Concat(malformed("id", del), misplaced(del), []refusal{
		{name: "another version", given: given, code: codes.Aborted, text: casFailed, call: stale(func(*pbresource.ID) {})},
		{name: "another version, no uid", given: given, code: codes.Aborted, text: casFailed,
			call: stale(func(id *pbresource.ID) { id.Uid = "" })},
		{name: "another version, finalizers", code: codes.Aborted, text: casFailed, call: stale(func(*pbresource.ID) {}),
			given: copied(given, func(res *pbresource.Resource) { res.Metadata = map[string]string{"finalizers": "a"} })},
		{name: "not allowed", given: given, code: codes.PermissionDenied, text: mayNotWrite,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return del(as(ctx, readerToken), s, at.GetId())
			}},
		{name: "denied without a stored resource", code: codes.PermissionDenied, text: mayNotWrite,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return del(as(ctx, readerToken), s, at.GetId())
			}},
	}))
}
