package servicetest

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

var tombstoneCases = topic{"Tombstones", []testCase{
	{name: "Unwritable", rules: []int{17}, run: tombstonesUnwritable},
	{name: "UnwritableInOpenRegistries", rules: []int{17}, run: tombstonesOpen},
	{name: "Form", rules: []int{13, 17}, run: tombstonesForm},
}}

// tombstone returns the tombstone of a resource.
func tombstone(owner *resourcepb.ID) *resourcepb.Resource {
	value, err := proto.Marshal(&resourcepb.Tombstone{Owner: owner})
	if err != nil {
		panic(err) // an id of a store always encodes
	}
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Name: "tombstone-" + strings.ToLower(owner.GetUid()), Type: clone(service.TombstoneType), Tenancy: clone(owner.GetTenancy()),
		},
		Data: &anypb.Any{TypeUrl: "type.googleapis.com/hashicorp.consul.resource.Tombstone", Value: value},
	}
}

func tombstonesUnwritable(s *suite) {
	owner := s.write(newThing("owner", "content"))
	gone := s.write(newThing("gone", "content"))
	s.delete(gone.GetId())
	stored := s.list(tombstones)[0]
	var rows []row
	for what, res := range map[string]*resourcepb.Resource{
		"a new tombstone": tombstone(owner.GetId()), "a stored tombstone": stored, "a stored tombstone by name": tombstone(gone.GetId()),
	} {
		rows = append(rows,
			row{"Write of " + what, writes(res), codes.InvalidArgument, "Tombstone"},
			row{"MutateAndValidate of " + what, validates(res), codes.InvalidArgument, "Tombstone"})
	}
	s.refuse(append(rows, row{"WriteStatus of a tombstone", func(s *suite) error {
		return only(s.WriteStatus(s.ctx, statusOf(stored, "key", "message")))
	}, codes.InvalidArgument, "tombstone"}))
}

// tombstonesOpen has a server that accepts every type. The key of a tombstone is the same in each group version.
func tombstonesOpen(s *suite) {
	owner := s.write(newThing("owner", "content"))
	gone := s.write(newThing("gone", "content"))
	s.delete(gone.GetId())
	s.Client = s.client(s.serverOf(registry.NewOpen(registry.Type{}), s.world, s.store))
	var rows []row
	for _, version := range []string{"v1", "v2", "v1beta1"} {
		for _, id := range []*resourcepb.ID{owner.GetId(), gone.GetId()} {
			res := tombstone(id)
			res.Id.Type.GroupVersion = version
			req := statusOf(res, "key", "message")
			req.Id.Uid, req.Status.ObservedGeneration = s.list(tombstones)[0].GetId().GetUid(), stale
			rows = append(rows,
				row{"Write as " + version, writes(res), codes.InvalidArgument, "Tombstone"},
				row{"MutateAndValidate as " + version, validates(res), codes.InvalidArgument, "Tombstone"},
				row{"WriteStatus as " + version, func(s *suite) error { return only(s.WriteStatus(s.ctx, req)) }, codes.InvalidArgument, "ombstone"})
		}
	}
	s.refuse(rows)
}

// tombstonesForm checks the tombstones of deleted resources, of each scope and with the longest names.
func tombstonesForm(s *suite) {
	w := s.watch(&resourcepb.WatchListRequest{Type: service.TombstoneType})
	w.snapshot()
	for _, res := range []*resourcepb.Resource{
		newThing(strings.Repeat("n", 63), "content"), in(east, east, newThing("a", "content")), newOf(site, "b"), newOf(planet, "c"),
	} {
		res = s.write(res)
		s.delete(res.GetId())
		id := tombstone(res.GetId()).GetId()
		stone := s.read(id)
		s.same("the tombstone that a watch shows", w.upsert(id.GetName()), stone)
		s.same("the payload", stone.GetData(), tombstone(res.GetId()).GetData())
		owner, err := service.Tombstone(stone)
		s.succeeds("Tombstone", err)
		s.same("the deleted resource", owner, res.GetId())
		answer, err := s.List(s.ctx, &resourcepb.ListRequest{Type: service.TombstoneType, Tenancy: anywhere, NamePrefix: id.GetName()})
		s.succeeds("List of tombstones", err)
		s.shows("the list of tombstones", answer.GetResources(), id.GetName())
		s.fails("Read of tombstones by nobody", only(s.Read(s.as(nobody), &resourcepb.ReadRequest{Id: id})), codes.PermissionDenied, ".")
		s.fails("Delete of tombstones by a reader", only(s.Delete(s.as(reader), &resourcepb.DeleteRequest{Id: id})), codes.PermissionDenied, ".")
		s.delete(id)
		w.deleted(id.GetName())
		if stones := s.list(tombstones); len(stones) > 0 {
			s.Errorf("the deletion of a tombstone leaves %s", text(stones[0]))
		}
	}
}
