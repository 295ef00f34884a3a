package servicetest

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/ashlar-dev/storage/resourcepb"
)

// The texts that clients compare.
const (
	notFound   = "resource not found"
	casFailure = "CAS operation failed because the given version doesn't match what is stored"
	wrongUid   = "write failed because the given uid doesn't match what is stored"
)

var readCases = topic{"Read", []testCase{
	{name: "Table", rules: []int{1}, run: readTable},
	{name: "Consistent", rules: []int{19}, run: readConsistent},
}}

func readTable(s *suite) {
	written := s.write(newThing("a", "content"))
	s.same("Read by name", s.read(idOf(thing, "a")), written)
	s.same("Read by name and uid", s.read(written.GetId()), written)
	reads := func(id *resourcepb.ID) func(*suite) error {
		return func(s *suite) error { return only(s.Read(s.ctx, &resourcepb.ReadRequest{Id: id})) }
	}
	s.refuse([]row{
		{"Read of an absent resource", reads(idOf(thing, "b")), codes.NotFound, exactly(notFound)},
		{"Read of another name", reads(idOf(thing, "aa")), codes.NotFound, exactly(notFound)},
		{"Read in another namespace", reads(in("", east, newThing("a", "")).GetId()), codes.NotFound, exactly(notFound)},
		{"Read in another partition", reads(in(east, "", newThing("a", "")).GetId()), codes.NotFound, exactly(notFound)},
		{"Read of another uid", reads(but(written.GetId(), func(id *resourcepb.ID) { id.Uid = stale })), codes.NotFound, exactly(notFound)},
		{"Read of another group version", reads(idOf(thing2, "a")), codes.InvalidArgument, "v1"},
		{"Read of another uid and group version", reads(but(written.GetId(), func(id *resourcepb.ID) {
			id.Uid, id.Type = stale, thing2
		})), codes.NotFound, exactly(notFound)},
	})
}

// readConsistent reads with strong consistency a resource that another server over the same store has just written.
func readConsistent(s *suite) {
	ctx := consistently(s.ctx)
	other := s.client(s.server(&world{}, s.store))
	for range 5 {
		written := s.write(newThing("a", "content"))
		answer, err := other.Read(ctx, &resourcepb.ReadRequest{Id: idOf(thing, "a")})
		s.succeeds("consistent Read", err)
		s.same("consistent Read", answer.GetResource(), written)
		list, err := other.List(ctx, &resourcepb.ListRequest{Type: thing, Tenancy: &resourcepb.Tenancy{}})
		s.succeeds("consistent List", err)
		if err := difference(list.GetResources(), []*resourcepb.Resource{written}); err != nil {
			s.Fatalf("consistent List: %v", err)
		}
	}
}

// consistently returns a context for linearizable calls.
func consistently(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-consul-consistency-mode", "consistent")
}
