package compat

import (
	"testing"

	catalog "github.com/hashicorp/consul/proto-public/pbcatalog/v2beta1"
	"github.com/hashicorp/consul/proto-public/pbresource"
	tenancy "github.com/hashicorp/consul/proto-public/pbtenancy/v2beta1"
	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// byDefault is the default tenancy of a request.
var byDefault = &pbresource.Tenancy{Partition: "default", Namespace: "default"}

func TestWriteAndRead(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		res := newService("web", "10.0.0.1")
		res.Metadata = map[string]string{"a": "b"}
		asked := proto.CloneOf(res)
		created := s.write(ctx, t, res)
		equal(t, "the request after the call", res, asked)
		for what, value := range map[string]string{"uid": created.GetId().GetUid(), "generation": created.GetGeneration()} {
			if _, err := ulid.ParseStrict(value); err != nil {
				t.Errorf("the %s %q is not a ULID: %v", what, value, err)
			}
		}
		if created.GetVersion() == "" {
			t.Error("the written resource has no version")
		}
		equal(t, "the created resource, except for the fields that the service sets", copied(created, func(res *pbresource.Resource) {
			res.Id.Uid, res.Generation, res.Version = "", "", ""
		}), copied(asked, func(res *pbresource.Resource) { res.Id.Tenancy = byDefault }))
		equal(t, "the resource read by name", s.read(ctx, t, asked.GetId()), created)
		equal(t, "the resource read by id", s.read(ctx, t, created.GetId()), created)

		// An update keeps the uid; it needs neither version nor uid.
		updated := s.write(ctx, t, newService("web", "10.0.0.2"))
		if updated.GetId().GetUid() != created.GetId().GetUid() {
			t.Errorf("the update changed the uid %s to %s", created.GetId().GetUid(), updated.GetId().GetUid())
		}
		if updated.GetGeneration() == created.GetGeneration() || updated.GetVersion() == created.GetVersion() {
			t.Errorf("the update did not change generation %q or version %q", updated.GetGeneration(), updated.GetVersion())
		}
		again := s.write(ctx, t, updated) // a compare-and-swap of the whole response
		if again.GetVersion() == updated.GetVersion() {
			t.Errorf("a second update did not change the version %q", again.GetVersion())
		}
		equal(t, "the resource read after the updates", s.read(ctx, t, asked.GetId()), again)

		// A write with another group version replaces the type.
		other := s.write(ctx, t, &pbresource.Resource{Id: &pbresource.ID{Type: serviceV1, Name: "web"}, Data: packed(wrapperspb.String("x"))})
		if other.GetId().GetUid() != created.GetId().GetUid() || other.GetId().GetType().GetGroupVersion() != "v1" {
			t.Errorf("the update by another group version is %v", other.GetId())
		}
	})
}

// The schemas of the payloads alone declare the scopes.
func TestScopes(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		cluster := s.write(ctx, t, &pbresource.Resource{Id: &pbresource.ID{Type: partitionType, Name: "p"}, Data: packed(&tenancy.Partition{})})
		equal(t, "the tenancy of a cluster-scoped resource", cluster.GetId().GetTenancy(), &pbresource.Tenancy{})
		partition := s.write(ctx, t, &pbresource.Resource{Id: &pbresource.ID{Type: namespaceType, Name: "n"}, Data: packed(&tenancy.Namespace{})})
		equal(t, "the tenancy of a partition-scoped resource", partition.GetId().GetTenancy(), &pbresource.Tenancy{Partition: "default"})
		equal(t, "the partition-scoped resource", s.read(ctx, t, &pbresource.ID{Type: namespaceType, Name: "n"}), partition)
	})
}

func TestMutateAndValidate(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		asked := newWorkload("api", "node", "")
		checked, err := s.MutateAndValidate(ctx, &pbresource.MutateAndValidateRequest{Resource: asked})
		if err != nil {
			t.Fatal(err)
		}
		want := newWorkload("api", "node", "default")
		want.Id.Tenancy = byDefault
		equal(t, "the resource that would be written", checked.GetResource(), want)
		if listed := s.list(ctx, t, &pbresource.ListRequest{Type: workloadType, Tenancy: byDefault}); len(listed) > 0 {
			t.Errorf("it is stored: %v", listed)
		}
		written := s.write(ctx, t, asked)
		equal(t, "the payload that Write stores", written.GetData(), want.GetData())
		// The payload is optional if the type's hooks accept that.
		none := &pbresource.Resource{Id: &pbresource.ID{Type: serviceType, Name: "none"}}
		if _, err := s.MutateAndValidate(ctx, &pbresource.MutateAndValidateRequest{Resource: none}); err != nil {
			t.Errorf("a resource without payload: %v", err)
		}
	})
}

func TestWriteStatus(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		res := s.write(ctx, t, newService("web", "10.0.0.1"))
		reported := &pbresource.Status{
			ObservedGeneration: res.GetGeneration(),
			Conditions: []*pbresource.Condition{
				{Type: "Accepted", State: pbresource.Condition_STATE_TRUE, Reason: "Fine", Message: "all fine"},
				{Type: "Placed", State: pbresource.Condition_STATE_FALSE, Resource: &pbresource.Reference{
					Type: namespaceType, Name: "n", Tenancy: &pbresource.Tenancy{Partition: "default"}, Section: "s",
				}},
			},
		}
		var last *pbresource.Resource
		for _, key := range []string{"a", "b"} {
			answer, err := s.WriteStatus(ctx, &pbresource.WriteStatusRequest{Id: res.GetId(), Key: key, Status: reported})
			if err != nil {
				t.Fatal(err)
			}
			last = answer.GetResource()
		}
		if last.GetGeneration() != res.GetGeneration() || last.GetVersion() == res.GetVersion() {
			t.Errorf("statuses changed generation %q to %q, and version %q to %q",
				res.GetGeneration(), last.GetGeneration(), res.GetVersion(), last.GetVersion())
		}
		for _, key := range []string{"a", "b"} {
			stored := last.GetStatus()[key]
			if !stored.GetUpdatedAt().IsValid() || stored.GetUpdatedAt() == nil {
				t.Errorf("status %s was updated at %v", key, stored.GetUpdatedAt())
			}
			equal(t, "status "+key, copied(stored, func(st *pbresource.Status) { st.UpdatedAt = nil }), reported)
		}
		equal(t, "what is read", s.read(ctx, t, res.GetId()), last)
		// A write without statuses keeps them, like a write with the stored statuses.
		updated := s.write(ctx, t, newService("web", "10.0.0.2"))
		equal(t, "statuses after a write without", statuses(updated), statuses(last))
		equal(t, "statuses after a write with them", statuses(s.write(ctx, t, updated)), statuses(last))
	})
}

// statuses returns a resource with the statuses of res only.
func statuses(res *pbresource.Resource) *pbresource.Resource {
	return &pbresource.Resource{Status: res.GetStatus()}
}

func TestLists(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		owner := s.write(ctx, t, newService("owner", "10.0.0.1"))
		in := func(name, partition, namespace string, change func(*pbresource.Resource)) *pbresource.Resource {
			return s.write(ctx, t, copied(inTenancy(newWorkload(name, "n", ""), partition, namespace), change))
		}
		owned := func(res *pbresource.Resource) { res.Owner = owner.GetId() }
		free := func(*pbresource.Resource) {}
		a, b := in("api-a", "default", "default", owned), in("api-b", "default", "default", free)
		other := in("api-a", "default", "other", owned)
		remote := in("web-a", "remote", "default", func(res *pbresource.Resource) { res.Metadata = map[string]string{"secret": "yes"} })
		all := &pbresource.Tenancy{Partition: "*", Namespace: "*"}
		for name, c := range map[string]struct {
			req  *pbresource.ListRequest
			want []*pbresource.Resource
		}{
			"a namespace":       {&pbresource.ListRequest{Tenancy: byDefault}, []*pbresource.Resource{a, b}},
			"no units":          {&pbresource.ListRequest{Tenancy: &pbresource.Tenancy{}}, []*pbresource.Resource{a, b}},
			"every namespace":   {&pbresource.ListRequest{Tenancy: &pbresource.Tenancy{Namespace: "*"}}, []*pbresource.Resource{a, b, other}},
			"everything":        {&pbresource.ListRequest{Tenancy: all}, []*pbresource.Resource{a, b, other, remote}},
			"a prefix":          {&pbresource.ListRequest{Tenancy: all, NamePrefix: "api-a"}, []*pbresource.Resource{a, other}},
			"a missing prefix":  {&pbresource.ListRequest{Tenancy: all, NamePrefix: "c"}, nil},
			"a missing one":     {&pbresource.ListRequest{Tenancy: &pbresource.Tenancy{Partition: "missing"}}, nil},
			"another's version": {&pbresource.ListRequest{Type: serviceV1, Tenancy: all}, nil},
		} {
			if c.req.Type == nil {
				c.req.Type = workloadType
			}
			sameResources(t, name, s.list(ctx, t, c.req), c.want)
		}
		sameResources(t, "what a reader sees", s.list(as(ctx, readerToken), t, &pbresource.ListRequest{Type: workloadType, Tenancy: all}),
			[]*pbresource.Resource{a, b, other})

		byOwner, err := s.ListByOwner(ctx, &pbresource.ListByOwnerRequest{Owner: owner.GetId()})
		if err != nil {
			t.Fatal(err)
		}
		sameResources(t, "by owner", byOwner.GetResources(), []*pbresource.Resource{a, other})
		another := copied(owner.GetId(), func(id *pbresource.ID) { id.Uid = otherUid })
		byOwner, err = s.ListByOwner(ctx, &pbresource.ListByOwnerRequest{Owner: another})
		if err != nil {
			t.Fatal(err)
		}
		sameResources(t, "by another incarnation of the owner", byOwner.GetResources(), nil)
	})
}

// The uid of an owner is optional: it is filled in from the stored owner, later from the stored resource.
func TestOwnerWithoutUid(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		owner := s.write(ctx, t, newService("owner", "10.0.0.1"))
		child := newService("child", "10.0.0.2")
		child.Owner = copied(owner.GetId(), func(id *pbresource.ID) { id.Uid = "" })
		for range 2 {
			equal(t, "the owner", s.write(ctx, t, child).GetOwner(), owner.GetId())
		}
	})
}

// Unknown bytes survive unchanged.
func TestUnknownBytesSurvive(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		known, err := proto.Marshal(&catalog.Service{VirtualIps: []string{"10.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		res := newService("web", "")
		res.Data = &anypb.Any{TypeUrl: "example.com/hashicorp.consul.catalog.v2beta1.Service", Value: append(known, 0xfa, 0x3f, 0x01, 'x')}
		equal(t, "the payload", s.read(ctx, t, s.write(ctx, t, res).GetId()).GetData(), res.GetData())
	})
}
