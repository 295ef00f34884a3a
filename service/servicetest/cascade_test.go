package servicetest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var cascadeCases = topic{"Cascade", []testCase{
	{name: "LongestNames", rules: []int{13}, run: cascadeNames},
	{name: "ThreeLevels", rules: []int{14}, run: cascadeLevels},
	{name: "FailedDelete", rules: []int{12}, run: cascadeFailed},
	{name: "Finalizers", rules: []int{14, 15}, run: cascadeFinalizers},
	{name: "EveryScope", rules: []int{14}, run: cascadeScopes},
}}

// settled waits until the reaper is idle and the store has only the given resources and tombstones.
func (s *suite) settled(want ...string) {
	s.Helper()
	s.eventually("the children and all tombstones are deleted", func() error {
		if stones := s.list(tombstones); len(stones) > 0 {
			return fmt.Errorf("%d tombstones remain, one is %s", len(stones), text(stones[0]))
		}
		return nil
	})
	s.shows("the store", s.list(everything), want...)
}

func cascadeNames(s *suite) {
	name := func(letter string) string { return strings.Repeat(letter, 63) }
	owner := s.write(newThing(name("a"), "content"))
	child := s.write(owned(newThing(name("b"), "content"), owner))
	s.write(owned(newThing(name("c"), "content"), child))
	s.reap(s.store)
	s.delete(owner.GetId())
	s.settled()
}

// cascadeLevels deletes the root of a tree, and recreates it at once.
func cascadeLevels(s *suite) {
	root := s.write(newThing("root", "content"))
	branches := make([]*resourcepb.Resource, 10)
	for i := range branches {
		branches[i] = s.write(owned(newThing(fmt.Sprintf("branch-%d", i), "content"), root))
	}
	s.parallel(s.scale(990), func(i int) error { // concurrently: some stores batch them
		leaf := owned(newThing(fmt.Sprintf("leaf-%d", i), "content"), branches[i%len(branches)])
		return only(s.Write(s.ctx, &resourcepb.WriteRequest{Resource: leaf}))
	})
	s.reap(s.store)
	s.delete(root.GetId())
	root = s.write(newThing("root", "again"))
	kept := s.write(owned(newThing("kept", "content"), root))
	s.write(owned(newThing("kept-leaf", "content"), kept))
	s.settled("kept", "kept-leaf", "root")
}

// cascadeFailed makes deletions fail, and then writes a tombstone of a stored owner, as from a failed deletion.
func cascadeFailed(s *suite) {
	owner := s.write(newThing("owner", "content"))
	s.write(owned(newThing("child", "content"), owner))
	s.fails("Delete at another version", only(s.Delete(s.ctx, &resourcepb.DeleteRequest{Id: owner.GetId(), Version: "garbage"})),
		codes.Aborted, exactly(casFailure))
	for _, res := range s.list(everything) {
		if name := res.GetId().GetName(); name != "owner" && name != "child" {
			s.Fatalf("a failed deletion leaves %s", text(res))
		}
	}
	stone := tombstone(owner.GetId())
	stone.Id.Uid, stone.Generation = stale, stale
	stone, err := s.store.WriteCAS(s.ctx, stone)
	s.succeeds("write a tombstone", err)

	reads := &countingReads{Backend: s.store, at: owner.GetId()}
	s.reap(reads)
	s.eventually("the reaper reads twice", func() error {
		if n := reads.count(); n < 3 { // the third read begins after the second check ended
			return fmt.Errorf("it has read %d times", n)
		}
		return nil
	})
	for _, name := range []string{"owner", "child"} {
		if !s.stored(in("default", "default", newThing(name, "")).GetId()) {
			s.Errorf("%s is deleted, and its owner never was", name)
		}
	}
	if !s.stored(stone.GetId()) {
		s.Error("a tombstone is deleted before its owner")
	}
	s.delete(owner.GetId())
	s.reap(s.store) // processes the tombstone at once, while the other reaper pauses
	s.settled()
}

// countingReads is a backend without capabilities that counts the strong reads of a resource. By such a read a
// reaper checks that the resource is deleted.
type countingReads struct {
	storage.Backend
	at *resourcepb.ID

	mu sync.Mutex
	n  int
}

// Read implements storage.Backend.
func (l *countingReads) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	if c == strong && proto.Equal(id, l.at) {
		l.mu.Lock()
		l.n++
		l.mu.Unlock()
	}
	return l.Backend.Read(ctx, c, id)
}

func (l *countingReads) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// cascadeFinalizers has a child with a finalizer, and grandchildren that depend on the child.
func cascadeFinalizers(s *suite) {
	owner := s.write(newThing("owner", "content"))
	child := s.write(with(owned(newThing("child", "content"), owner), finalizers, "one"))
	s.write(owned(newThing("grandchild", "content"), child))
	s.reap(s.store)
	s.delete(owner.GetId())
	s.eventually("the child is marked", func() error {
		if s.read(child.GetId()).GetMetadata()[stamp] == "" {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	if !s.stored(in("default", "default", newThing("grandchild", "")).GetId()) {
		s.Error("a grandchild is deleted before its owner is")
	}
	s.write(with(s.read(child.GetId()), finalizers, ""))
	s.settled()
}

func cascadeScopes(s *suite) {
	root := s.write(newOf(planet, "root"))
	branch := s.write(owned(newOf(site, "branch"), root))
	s.write(owned(in(east, east, newThing("leaf", "content")), branch))
	s.write(owned(newOf(planet, "other"), branch))
	s.write(newOf(planet, "stays"))
	s.reap(s.store)
	s.delete(root.GetId())
	s.settled("stays")
}
