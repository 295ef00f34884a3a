package etcdserver_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// If history is compacted while a watch is behind, the watch gets every change up to a point, and then an error that the rest is compacted.
// No change is skipped. Another watch can start right after the compacted revision.
func TestCompactionWhileAWatchCatchesUp(t *testing.T) {
	aloneOnEngines(t, func(t *testing.T, c *clientv3.Client) {
		const changes, kept = 300, 280
		value := strings.Repeat("x", 20<<10)
		var revisions []int64
		for range changes {
			revisions = append(revisions, put(t, c, "k", value))
		}
		slow := stream(t, c)
		create(t, slow, &pb.WatchCreateRequest{Key: []byte("k"), StartRevision: revisions[0], PrevKv: true})
		receive(t, slow) // then nothing until the compaction, so that the server's responses wait
		if _, err := c.Compact(ctx(t), revisions[kept]); err != nil {
			t.Fatal(err)
		}
		last := put(t, c, "k", "last")
		next := 0
		for done := false; !done; {
			r := receive(t, slow)
			for _, ev := range r.Events {
				if next < changes && ev.Kv.ModRevision != revisions[next] || next == changes && ev.Kv.ModRevision != last {
					t.Fatalf("change %d has revision %d", next, ev.Kv.ModRevision)
				}
				next++
			}
			if done = next > changes; r.Canceled {
				if r.CompactRevision != revisions[kept] || next > kept {
					t.Fatalf("after %d changes the watch reports a compaction at %d, expected %d", next, r.CompactRevision, revisions[kept])
				}
				break
			}
		}
		again := <-c.Watch(ctx(t), "k", clientv3.WithRev(revisions[kept]+1), clientv3.WithPrevKV())
		if again.Err() != nil || len(again.Events) == 0 || again.Events[0].Kv.ModRevision != revisions[kept+1] ||
			again.Events[0].PrevKv.GetModRevision() != revisions[kept] {
			t.Errorf("a watch from after the compacted revision gets %v, %v", again.Events, again.Err())
		}
	})
}

// Every watch is answered with its creation and then with its end, in whatever order create and cancel requests arrive.
func TestCancellationsAtAnyMoment(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		const watches = 300
		s, base := stream(t, c), put(t, c, "c/", "")
		starts := []int64{0, base, base + 1}
		var writing sync.WaitGroup
		writing.Go(func() {
			for i := range watches {
				if _, err := c.Put(ctx(t), fmt.Sprint("c/", i%7), ""); err != nil {
					t.Error(err)
					return
				}
			}
		})
		writing.Go(func() {
			for i := range int64(watches) {
				r := &pb.WatchCreateRequest{Key: []byte("c/"), RangeEnd: []byte("c0"), WatchId: i + 1, StartRevision: starts[i%3], ProgressNotify: i%2 == 0}
				for _, request := range []*pb.WatchRequest{
					{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}},
					{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}},
					{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: max(1, i+1-i%4)}}},
				} {
					if err := s.Send(request); err != nil {
						t.Error(err)
						return
					}
				}
			}
			for i := range int64(watches) { // cancelled before they existed
				cancel := &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: i + 1}}
				if err := s.Send(&pb.WatchRequest{RequestUnion: cancel}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		created, ended := map[int64]bool{}, map[int64]bool{}
		for len(ended) < watches {
			r := receive(t, s)
			switch {
			case r.WatchId == -1: // progress of all watches
			case ended[r.WatchId]:
				t.Fatalf("after its end, watch %d receives %v", r.WatchId, r)
			case r.Created != !created[r.WatchId]:
				t.Fatalf("watch %d, created %v, receives %v", r.WatchId, created[r.WatchId], r)
			}
			if r.Created {
				created[r.WatchId] = true
			}
			if r.Canceled {
				ended[r.WatchId] = true
			}
		}
		writing.Wait()
	})
}

// The number of a watch is free after its end was sent.
func TestNumbersOfWatchesThatEnded(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		for range 20 { // streams, because the context of each limits the time of its turns
			s := stream(t, c)
			for i := range 25 {
				create(t, s, &pb.WatchCreateRequest{Key: []byte("a"), WatchId: 7})
				if r := receive(t, s); !r.Created || r.Canceled {
					t.Fatalf("turn %d begins with %v", i, r)
				}
				cancel := &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 7}}
				if err := s.Send(&pb.WatchRequest{RequestUnion: cancel}); err != nil {
					t.Fatal(err)
				}
				if r := receive(t, s); r.Created || !r.Canceled {
					t.Fatalf("turn %d ends with %v", i, r)
				}
			}
		}
	})
}

// The number of a watch is free as soon as its cancellation is requested, as in etcd: the client need not wait for the response.
func TestNumbersOfWatchesThatAreToEnd(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		s := stream(t, c)
		const turns = 200
		for range turns {
			create(t, s, &pb.WatchCreateRequest{Key: []byte("a"), WatchId: 7})
			cancel := &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 7}}
			if err := s.Send(&pb.WatchRequest{RequestUnion: cancel}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range turns {
			if r := receive(t, s); r.WatchId != 7 || !r.Created || r.Canceled {
				t.Fatalf("turn %d begins with %v", i, r)
			}
			if r := receive(t, s); r.WatchId != 7 || r.Created || !r.Canceled {
				t.Fatalf("turn %d ends with %v", i, r)
			}
		}
	})
}
