package etcdserver_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/inmem"
)

// oneFailure is a store where the third request for its revisions fails.
type oneFailure struct {
	storage.Backend
	history.Historian
	storage.Transactor
	counts atomic.Bool
	calls  atomic.Int64
}

func (f *oneFailure) Revisions(ctx context.Context) (oldest, newest int64, err error) {
	if f.counts.Load() && f.calls.Add(1) == 3 {
		return 0, 0, storage.ErrInconsistent
	}
	return f.Historian.Revisions(ctx)
}

// watchCalls is a stream whose client sends its requests at once, and never ends it.
type watchCalls struct {
	grpc.ServerStream
	ctx      context.Context
	requests chan *pb.WatchRequest

	mu      sync.Mutex
	created []int64
}

func (s *watchCalls) Context() context.Context { return s.ctx }

func (s *watchCalls) Recv() (*pb.WatchRequest, error) {
	select {
	case r := <-s.requests:
		return r, nil
	case <-s.ctx.Done():
		return nil, io.EOF
	}
}

func (s *watchCalls) Send(r *pb.WatchResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Created {
		s.created = append(s.created, r.WatchId)
	}
	return nil
}

// A watch that the store cannot open ends the stream, and no later watch is announced before: clients match the announcements to their
// requests by their order, and would deliver the changes of one watch to the receiver of another.
func TestFailureAnnouncesNoLaterWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inmem.New(nil)
		defer b.Close()
		h, ok := storage.As[history.Historian](b)
		if !ok {
			t.Fatal("memory has no history")
		}
		store := &oneFailure{Backend: b, Historian: h, Transactor: b}
		s, err := etcdserver.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		store.counts.Store(true)
		const watches = 50
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls := &watchCalls{ctx: ctx, requests: make(chan *pb.WatchRequest, watches)}
		for i := range watches {
			r := &pb.WatchCreateRequest{Key: []byte("k")}
			if i%10 == 5 {
				r.RangeEnd = []byte("a") // refused
			}
			calls.requests <- &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
		}
		if err := s.Watch(calls); err == nil || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			t.Fatalf("the stream ended with %v", err)
		}
		next := int64(0)
		for i, id := range calls.created {
			switch {
			case i%10 == 5 && id == -1:
			case i%10 != 5 && id == next:
				next++
			default:
				t.Fatalf("the announcements are %v", calls.created)
			}
		}
	})
}
