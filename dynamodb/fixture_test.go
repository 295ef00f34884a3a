package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// handle opens a handle on the fake's one store.
func handle(t testing.TB, s *dynamofake.Server, change ...func(*dynamodb.Options)) *dynamodb.Backend {
	t.Helper()
	return handleThrough(t, s, func(*awsdynamodb.Options) {}, change...)
}

func newHandle(t testing.TB, s *dynamofake.Server, change ...func(*dynamodb.Options)) (*dynamodb.Backend, error) {
	t.Helper()
	return newHandleThrough(t, s, func(*awsdynamodb.Options) {}, change...)
}

// handleThrough opens a handle whose client has an additional option.
func handleThrough(t testing.TB, s *dynamofake.Server, option func(*awsdynamodb.Options), change ...func(*dynamodb.Options)) *dynamodb.Backend {
	t.Helper()
	b, err := newHandleThrough(t, s, option, change...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newHandleThrough(t testing.TB, s *dynamofake.Server, option func(*awsdynamodb.Options), change ...func(*dynamodb.Options)) (*dynamodb.Backend, error) {
	t.Helper()
	db, streams := s.Clients(t, option)
	opts := &dynamodb.Options{Table: dynamofake.Table, Prefix: "test", Poll: 2 * time.Millisecond, IdlePoll: 10 * time.Millisecond, Timeout: fixture.Timeout}
	for _, c := range change {
		c(opts)
	}
	b, err := dynamodb.New(t.Context(), db, streams, opts)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, nil
}

// gateOf returns the Mover of a backend.
func gateOf(b storage.Backend) driver.Mover {
	f, _ := storage.As[driver.Mover](b)
	return f
}

var (
	tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	boxType = storage.UnversionedType{Group: "test", Kind: "Box"}
)

func box(name string, data []byte) *resourcepb.Resource {
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Uid: "uid-" + name, Name: name, Tenancy: tenancy,
			Type: &resourcepb.Type{Group: boxType.Group, GroupVersion: "v1", Kind: boxType.Kind},
		},
		Data: &anypb.Any{TypeUrl: "test/Box", Value: data},
	}
}

func watch(t testing.TB, b storage.Backend) storage.Watch {
	t.Helper()
	w, err := b.WatchList(t.Context(), boxType, tenancy, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// afterSnapshot reads a watch up to the end of its snapshot and returns the versions in it by name.
func afterSnapshot(t testing.TB, w storage.Watch) map[string]string {
	t.Helper()
	shown := map[string]string{}
	for {
		ev := fixture.Next(t, w)
		if ev.GetEndOfSnapshot() != nil {
			return shown
		}
		res := ev.GetUpsert().GetResource()
		shown[res.GetId().GetName()] = res.GetVersion()
	}
}

// closedWith reads a watch until it ends and checks the error.
func closedWith(t testing.TB, w storage.Watch, targets ...error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Timeout)
	defer cancel()
	for {
		_, err := w.Next(ctx)
		if err == nil {
			continue
		}
		for _, target := range append(targets, storage.ErrWatchClosed) {
			if !errors.Is(err, target) {
				t.Fatalf("the watch ended with %v, expected %v", err, target)
			}
		}
		return
	}
}

// countRequests repeats a function that counts the requests of calls, until it returns no differences from the expected numbers. The renewal
// of a handle's permission to write, every 15 seconds, adds requests to one attempt.
func countRequests(t *testing.T, differences func() []string) {
	t.Helper()
	var found []string
	for range 3 {
		if found = differences(); len(found) == 0 {
			return
		}
	}
	t.Error(strings.Join(found, "\n"))
}

// journal records the results of successful writes: the versions of each name in order, and deletions as "deleted ".
type journal struct {
	mu       sync.Mutex
	versions map[string][]string
}

func (j *journal) add(name, version string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.versions == nil {
		j.versions = map[string][]string{}
	}
	j.versions[name] = append(j.versions[name], version)
}

func (j *journal) of(name string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.versions[name])
}

// load starts n writers. Each creates a box, writes it many times, deletes it, creates it again, and so on.
func load(t testing.TB, b storage.Backend, j *journal, n, writes int, between func(i int)) *sync.WaitGroup {
	t.Helper()
	return loadWhile(t, b, j, n, func(i int) bool {
		if i == writes {
			return false
		}
		between(i)
		return true
	})
}

// loadWhile does the same while a function, which each writer calls before a write, returns true.
func loadWhile(t testing.TB, b storage.Backend, j *journal, n int, more func(i int) bool) *sync.WaitGroup {
	t.Helper()
	var writers sync.WaitGroup
	for w := range n {
		name := fmt.Sprintf("box-%02d", w)
		writers.Go(func() {
			res := box(name, []byte("0"))
			for i := 0; more(i); i++ {
				if i%7 == 6 {
					if err := b.DeleteCAS(t.Context(), res.GetId(), res.GetVersion()); err != nil {
						t.Errorf("delete: %v", err)
						return
					}
					j.add(name, "deleted "+res.GetVersion())
					res.Version = ""
					continue
				}
				res.Data.Value = fmt.Append(nil, i)
				stored, err := b.WriteCAS(t.Context(), res)
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
				res = stored
				j.add(name, res.GetVersion())
			}
			res.Data.Value = []byte("last")
			stored, err := b.WriteCAS(t.Context(), res)
			if err != nil {
				t.Errorf("write: %v", err)
				return
			}
			j.add(name, stored.GetVersion())
		})
	}
	return &writers
}

// writeTurns limits the writes of a load, so that their number does not depend on how long a test takes to open its watches.
type writeTurns struct{ turns, end chan struct{} }

func newWriteTurns() *writeTurns { return &writeTurns{make(chan struct{}), make(chan struct{})} }

// take is a condition of loadWhile. It blocks until the test gives a turn, and returns false after the test has closed end.
func (c *writeTurns) take(int) bool {
	select {
	case <-c.turns:
		return true
	case <-c.end:
		return false
	}
}

// give returns when n writes have begun.
func (c *writeTurns) give(n int) {
	for range n {
		select {
		case c.turns <- struct{}{}:
		case <-c.end:
			return
		}
	}
}

// duringScans gives n turns during each query, before the server processes it, so that the writes are concurrent with the snapshots.
func (c *writeTurns) duringScans(s *dynamofake.Server, n int) {
	s.SetGate(func(op string) {
		if op == "Query" {
			c.give(n)
		}
	})
}

// seen converts an event into the journal's form.
func seen(ev *resourcepb.WatchEvent) (name, version string, last bool) {
	if d := ev.GetDelete(); d != nil {
		return d.GetResource().GetId().GetName(), "deleted " + d.GetResource().GetVersion(), false
	}
	res := ev.GetUpsert().GetResource()
	return res.GetId().GetName(), res.GetVersion(), string(res.GetData().GetValue()) == "last"
}

// follow reads events until each of n names has had its last one, and returns the events.
func follow(t testing.TB, w storage.Watch, n int) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	for finished := 0; finished < n; {
		name, version, last := seen(fixture.Next(t, w))
		got[name] = append(got[name], version)
		if last {
			finished++
		}
	}
	return got
}
