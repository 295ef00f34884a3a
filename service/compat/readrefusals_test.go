package compat

import (
	"context"
	"slices"
	"testing"

	"github.com/hashicorp/consul/proto-public/pbresource"
	"google.golang.org/grpc/codes"
)

func TestReadRefuses(t *testing.T) {
	read := func(ctx context.Context, s *server, id *pbresource.ID) error {
		_, err := s.Read(ctx, &pbresource.ReadRequest{Id: id})
		return err
	}
	refused(t, slices.Concat(malformed("id", read), misplaced(read), []refusal{
		{name: "absent", code: codes.NotFound, text: notFound,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error { return read(ctx, s, at.GetId()) }},
		{name: "another uid", given: newService("", "10.0.0.1"), code: codes.NotFound, text: notFound,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return read(ctx, s, copied(at.GetId(), func(id *pbresource.ID) { id.Uid = otherUid }))
			}},
		{name: "another group version", given: newService("", "10.0.0.1"), code: codes.InvalidArgument, text: "resource …",
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return read(ctx, s, copied(at.GetId(), func(id *pbresource.ID) { id.Type = serviceV1 }))
			}},
		{name: "partition missing", code: codes.NotFound, text: "tenancy not found: …",
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return read(ctx, s, inTenancy(at, "missing", "default").GetId())
			}},
		{name: "not allowed", given: newService("", "10.0.0.1"), code: codes.PermissionDenied, text: mayNotRead,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return read(as(ctx, nobodyToken), s, at.GetId())
			}},
		{name: "denied without a stored resource", code: codes.PermissionDenied, text: mayNotRead,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return read(as(ctx, nobodyToken), s, inTenancy(at, "missing", "default").GetId())
			}},
		{name: "denied because of the stored resource", given: secretWorkload(), code: codes.PermissionDenied,
			text: mayNotWrite,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return read(as(ctx, readerToken), s, at.GetId())
			}},
		{name: "token not known", given: newService("", "10.0.0.1"), code: codes.Unauthenticated, text: "unauthenticated: …",
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return read(as(ctx, unknownToken), s, at.GetId())
			}},
		{name: "authentication breaks", given: newService("", "10.0.0.1"), code: codes.Internal, text: "…",
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return read(as(ctx, brokenToken), s, at.GetId())
			}},
	}))
}

// inTenancy returns a resource in a tenancy.
func inTenancy(res *pbresource.Resource, partition, namespace string) *pbresource.Resource {
	return copied(res, func(res *pbresource.Resource) {
		res.Id.Tenancy = &pbresource.Tenancy{Partition: partition, Namespace: namespace}
	})
}

// secretWorkload is a workload that only callers with write permission may read.
func secretWorkload() *pbresource.Resource {
	res := newWorkload("", "node", "")
	res.Metadata = map[string]string{"secret": "yes"}
	return res
}

func TestListRefuses(t *testing.T) {
	list := func(change func(*pbresource.ListRequest)) func(context.Context, *server, *pbresource.Resource) error {
		return func(ctx context.Context, s *server, _ *pbresource.Resource) error {
			req := &pbresource.ListRequest{Type: serviceType, Tenancy: &pbresource.Tenancy{}}
			change(req)
			_, err := s.List(ctx, req)
			return err
		}
	}
	in := func(partition, namespace string) *pbresource.Tenancy {
		return &pbresource.Tenancy{Partition: partition, Namespace: namespace}
	}
	refused(t, append(misplaced(func(ctx context.Context, s *server, id *pbresource.ID) error {
		_, err := s.List(ctx, &pbresource.ListRequest{Type: id.GetType(), Tenancy: copied(in("", ""), func(t *pbresource.Tenancy) {
			t.Partition, t.Namespace = id.GetTenancy().GetPartition(), id.GetTenancy().GetNamespace()
		})})
		return err
	}),
		refusal{name: "no type", code: codes.InvalidArgument, text: "type is required",
			call: list(func(r *pbresource.ListRequest) { r.Type = nil })},
		refusal{name: "no tenancy", code: codes.InvalidArgument, text: "tenancy is required",
			call: list(func(r *pbresource.ListRequest) { r.Tenancy = nil })},
		refusal{name: "partition in upper case", code: codes.InvalidArgument, text: "tenancy.partition invalid: …",
			call: list(func(r *pbresource.ListRequest) { r.Tenancy = in("Default", "") })},
		refusal{name: "namespace in upper case", code: codes.InvalidArgument, text: "tenancy.namespace invalid: …",
			call: list(func(r *pbresource.ListRequest) { r.Tenancy = in("", "Default") })},
		refusal{name: "prefix in upper case", code: codes.InvalidArgument, text: "name_prefix invalid: …",
			call: list(func(r *pbresource.ListRequest) { r.NamePrefix = "Web" })},
		refusal{name: "not allowed", code: codes.PermissionDenied, text: mayNotRead,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return list(func(*pbresource.ListRequest) {})(as(ctx, nobodyToken), s, at)
			}},
	))
}

func TestListByOwnerRefuses(t *testing.T) {
	owned := func(ctx context.Context, s *server, id *pbresource.ID) error {
		_, err := s.ListByOwner(ctx, &pbresource.ListByOwnerRequest{Owner: id})
		return err
	}
	refused(t, slices.Concat(malformed("owner", owned), misplaced(owned), []refusal{
		{name: "no uid", code: codes.InvalidArgument, text: "owner.uid is required",
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error { return owned(ctx, s, at.GetId()) }},
		{name: "not allowed", given: newService("", "10.0.0.1"), code: codes.PermissionDenied, text: mayNotRead,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return owned(as(ctx, nobodyToken), s, at.GetId())
			}},
	}))
}

func TestWatchRefuses(t *testing.T) {
	watch := func(ctx context.Context, s *server, req *pbresource.WatchListRequest) error {
		stream, err := s.WatchList(ctx, req)
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	refused(t, append(misplaced(func(ctx context.Context, s *server, id *pbresource.ID) error {
		return watch(ctx, s, &pbresource.WatchListRequest{Type: id.GetType(), Tenancy: id.GetTenancy()})
	}),
		refusal{name: "no type", code: codes.InvalidArgument, text: "type is required",
			call: func(ctx context.Context, s *server, _ *pbresource.Resource) error {
				return watch(ctx, s, &pbresource.WatchListRequest{Tenancy: &pbresource.Tenancy{}})
			}},
		refusal{name: "prefix in upper case", code: codes.InvalidArgument, text: "name_prefix invalid: …",
			call: func(ctx context.Context, s *server, _ *pbresource.Resource) error {
				return watch(ctx, s, &pbresource.WatchListRequest{Type: serviceType, NamePrefix: "Web"})
			}},
		refusal{name: "namespace in upper case", code: codes.InvalidArgument, text: "tenancy.namespace invalid: …",
			call: func(ctx context.Context, s *server, _ *pbresource.Resource) error {
				return watch(ctx, s, &pbresource.WatchListRequest{Type: serviceType, Tenancy: &pbresource.Tenancy{Namespace: "Default"}})
			}},
		refusal{name: "not allowed", code: codes.PermissionDenied, text: mayNotRead,
			call: func(ctx context.Context, s *server, _ *pbresource.Resource) error {
				return watch(as(ctx, nobodyToken), s, &pbresource.WatchListRequest{Type: serviceType})
			}},
	))
}
