package etcdserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// stream opens a stream of watches without the logic of etcd's client.
func stream(t *testing.T, c *clientv3.Client) pb.Watch_WatchClient {
	t.Helper()
	s, err := pb.NewWatchClient(c.ActiveConnection()).Watch(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t *testing.T, s pb.Watch_WatchClient, r *pb.WatchCreateRequest) {
	t.Helper()
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, s pb.Watch_WatchClient) *pb.WatchResponse {
	t.Helper()
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The watches of one stream are created in the order of their requests, and each of them returns a change of the key that they share.
func TestManyWatchesOfAKey(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		s := stream(t, c)
		const watches = 200
		key := []byte("k")
		for range watches {
			create(t, s, &pb.WatchCreateRequest{Key: key})
		}
		for i := range watches {
			if r := receive(t, s); !r.Created || r.WatchId != int64(i) {
				t.Fatalf("answer %d: %v", i, r)
			}
		}
		put(t, c, string(key), "")
		seen := map[int64]bool{}
		for len(seen) < watches {
			r := receive(t, s)
			if len(r.Events) != 1 || seen[r.WatchId] {
				t.Fatalf("after one change: %v", r)
			}
			seen[r.WatchId] = true
		}
	})
}

// Progress is reported for a stream when all of its watches have reached the revision, and for a watch that requested it when that watch
// has. Under any load it never comes before a change up to the revision (kine#731), nor after a later change.
func TestProgressNeverOvertakesAnEvent(t *testing.T) {
	t.Parallel()
	for name, url := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.Open(t, url(t))
			// Writers use a different server than the watches.
			writer := client(t, serve(t, b, nil))
			c := client(t, serve(t, b, &etcdserver.Options{ProgressInterval: time.Millisecond}))
			progressIsTrue(t, writer, c)
		})
	}
}

func progressIsTrue(t *testing.T, writer, c *clientv3.Client) {
	t.Helper()
	s := stream(t, c)
	const watches, writers, writes = 5, 4, 30
	for i := range watches {
		create(t, s, &pb.WatchCreateRequest{Key: fmt.Appendf(nil, "%d/", i), RangeEnd: fmt.Appendf(nil, "%d0", i), ProgressNotify: i%2 == 0})
	}
	for created := 0; created < watches; { // progress notifications may come in between
		if r := receive(t, s); r.Created {
			created++
		}
	}
	writeCtx, end := context.WithCancel(ctx(t))
	defer end()
	var all sync.WaitGroup
	var mu sync.Mutex
	wrote := map[string]int64{}
	for w := range writers {
		all.Go(func() {
			for n := range writes {
				key := fmt.Sprintf("%d/%d-%d", (w+n)%(watches+1), w, n) // the last key is not watched
				r, err := writer.Put(writeCtx, key, "")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				wrote[key] = r.Header.Revision
				mu.Unlock()
			}
		})
	}
	ask := func() {
		r := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
		if err := s.Send(r); err != nil {
			t.Error(err)
		}
	}
	ask()
	proven, progressCount := map[int64]int64{}, map[int64]int{}
	last := map[int64]int64{} // the newest revision of an event of each watch, and of all watches under -1
	seen := map[string]int64{}
	wanted := 0
	for w := range writers {
		for n := range writes {
			if (w+n)%(watches+1) < watches {
				wanted++
			}
		}
	}
	// The loop ends when all changes are seen and proven, also by the watches' own progress.
	for len(seen) < wanted || progressCount[-1] == 0 || progressCount[0] == 0 || progressCount[2] == 0 {
		r := receive(t, s)
		for _, ev := range r.Events {
			if p := max(proven[-1], proven[r.WatchId]); ev.Kv.ModRevision <= p {
				t.Fatalf("revision %d came after progress to %d", ev.Kv.ModRevision, p)
			}
			if seen[string(ev.Kv.Key)] != 0 {
				t.Fatalf("%s came twice", ev.Kv.Key)
			}
			seen[string(ev.Kv.Key)] = ev.Kv.ModRevision
			last[r.WatchId], last[-1] = max(last[r.WatchId], ev.Kv.ModRevision), max(last[-1], ev.Kv.ModRevision)
		}
		if len(r.Events) == 0 {
			// kube-apiserver takes the revision of progress as its cache's revision, but the cache would then contain newer
			// objects.
			if r.Header.Revision < last[r.WatchId] {
				t.Fatalf("watch %d gets progress to %d after an event of revision %d", r.WatchId, r.Header.Revision, last[r.WatchId])
			}
			if r.Header.Revision < proven[r.WatchId] {
				t.Fatalf("progress went back from %d to %d", proven[r.WatchId], r.Header.Revision)
			}
			proven[r.WatchId] = r.Header.Revision
			if progressCount[r.WatchId]++; r.WatchId == -1 {
				ask()
			}
		}
	}
	all.Wait()
	for key, revision := range wrote {
		if !strings.HasPrefix(key, fmt.Sprint(watches)) && seen[key] != revision {
			t.Errorf("%s was written at revision %d and seen at %d", key, revision, seen[key])
		}
	}
	if progressCount[1] != 0 {
		t.Error("a watch that did not request progress got it")
	}
}

// A watch can start after the compacted revision, but not at or before it (kine#747).
func TestWatchesFromWhereItIsCompacted(t *testing.T) {
	aloneOnEngines(t, func(t *testing.T, c *clientv3.Client) {
		empty, err := c.Get(ctx(t), "a")
		if err != nil || empty.Header.Revision < 1 {
			t.Fatalf("an empty store has revision %d, %v", empty.Header.Revision, err)
		}
		put(t, c, "a", "1")
		at := put(t, c, "a", "2")
		next := put(t, c, "a", "3")
		first := <-c.Watch(ctx(t), "a", clientv3.WithRev(1))
		if first.Err() != nil || len(first.Events) == 0 {
			t.Errorf("from the beginning: %v", first)
		}
		if _, err := c.Compact(ctx(t), at); err != nil {
			t.Fatal(err)
		}
		answer := <-c.Watch(ctx(t), "a", clientv3.WithRev(at+1), clientv3.WithPrevKV())
		if answer.Err() != nil || len(answer.Events) != 1 || answer.Events[0].Kv.ModRevision != next ||
			string(answer.Events[0].PrevKv.GetValue()) != "2" {
			t.Errorf("after the compacted revision: %v, %v", answer.Events, answer.Err())
		}
		for _, from := range []int64{at - 1, at} { // the state before a change at the compacted revision is lost
			answer := <-c.Watch(ctx(t), "a", clientv3.WithRev(from), clientv3.WithPrevKV())
			if !errors.Is(answer.Err(), rpctypes.ErrCompacted) || answer.CompactRevision != at {
				t.Errorf("from %d, compacted up to %d: %v, %d", from, at, answer.Err(), answer.CompactRevision)
			}
		}
	})
}

func TestWatchesOfTheFuture(t *testing.T) {
	aloneOnEngines(t, func(t *testing.T, c *clientv3.Client) {
		at := put(t, c, "a", "1")
		w := c.Watch(ctx(t), "a", clientv3.WithRev(at+2), clientv3.WithCreatedNotify())
		if r := <-w; !r.Created {
			t.Fatal(r)
		}
		put(t, c, "a", "2")
		want := put(t, c, "a", "3")
		if r := <-w; len(r.Events) != 1 || r.Events[0].Kv.ModRevision != want {
			t.Errorf("from revision %d: %v", at+2, r.Events)
		}
	})
}

func TestWatchesOfAStream(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		s := stream(t, c)
		deletions := []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}
		create(t, s, &pb.WatchCreateRequest{Key: []byte("a"), WatchId: 7, Filters: deletions})
		create(t, s, &pb.WatchCreateRequest{Key: []byte("a"), WatchId: 7})
		create(t, s, &pb.WatchCreateRequest{Key: []byte("a"), Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}})
		if r := receive(t, s); r.WatchId != 7 || !r.Created || r.Canceled {
			t.Errorf("a watch with a number of its own: %v", r)
		}
		if r := receive(t, s); r.WatchId != -1 || !r.Created || !r.Canceled {
			t.Errorf("a watch with a number that is in use: %v", r)
		}
		if r := receive(t, s); r.WatchId != 0 || !r.Created {
			t.Errorf("a watch without a number: %v", r)
		}
		put(t, c, "a", "1")
		if _, err := c.Delete(ctx(t), "a"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if r := receive(t, s); len(r.Events) != 1 || (r.Events[0].Type.String() == "DELETE") != (r.WatchId == 7) {
				t.Errorf("with filters: %v", r)
			}
		}
		cancel := &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 7}}
		if err := s.Send(&pb.WatchRequest{RequestUnion: cancel}); err != nil {
			t.Fatal(err)
		}
		if r := receive(t, s); r.WatchId != 7 || !r.Canceled || r.CancelReason != "" {
			t.Errorf("a cancelled watch: %v", r)
		}
	})
}

// The events of a transaction come in one response, in fragments if the request allows them.
func TestWatchesGetTransactionsAsAWhole(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		s := stream(t, c)
		create(t, s, &pb.WatchCreateRequest{Key: []byte("t"), RangeEnd: []byte("u")})
		create(t, s, &pb.WatchCreateRequest{Key: []byte("t"), RangeEnd: []byte("u"), Fragment: true, PrevKv: true})
		receive(t, s)
		receive(t, s)
		const keys = 8
		all := map[int64]int{}
		for round := range 2 {
			var ops []clientv3.Op
			for i := range keys {
				ops = append(ops, clientv3.OpPut(fmt.Sprint("t", i), strings.Repeat(fmt.Sprint(round), 120<<10)))
			}
			if _, err := c.Txn(ctx(t)).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			whole := map[int64]bool{}
			fragments := 0
			for len(whole) < 2 {
				r := receive(t, s)
				all[r.WatchId] += len(r.Events)
				if r.Fragment {
					fragments++
				} else {
					whole[r.WatchId] = true
				}
				if (r.WatchId == 0 && len(r.Events) != keys) || (r.WatchId == 1 && proto.Size(r) > 2<<20) {
					t.Errorf("an answer to watch %d has %d events and %d bytes", r.WatchId, len(r.Events), proto.Size(r))
				}
			}
			if fragments != round { // the previous values make the second response too large
				t.Errorf("%d fragments in round %d", fragments, round)
			}
		}
		if all[0] != 2*keys || all[1] != 2*keys {
			t.Errorf("events: %v", all)
		}
	})
}

// The fragments of a response come one after the other: a client that joins them would take another response for a fragment, or drop it.
func TestNothingComesBetweenFragments(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		s := stream(t, c)
		const watches, keys, rounds = 6, 8, 2
		for range watches {
			create(t, s, &pb.WatchCreateRequest{Key: []byte("t"), RangeEnd: []byte("u"), Fragment: true, PrevKv: true})
		}
		for range watches {
			receive(t, s)
		}
		for round := range rounds {
			var ops []clientv3.Op
			for i := range keys {
				ops = append(ops, clientv3.OpPut(fmt.Sprint("t", i), strings.Repeat(fmt.Sprint(round), 120<<10)))
			}
			if _, err := c.Txn(ctx(t)).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			var begun *pb.WatchResponse
			for whole := 0; whole < watches; {
				r := receive(t, s)
				if begun != nil && begun.WatchId != r.WatchId {
					t.Fatalf("an answer to watch %d comes between the fragments of one to watch %d", r.WatchId, begun.WatchId)
				}
				if begun = r; !r.Fragment {
					begun = nil
					whole++
				}
			}
		}
	})
}
