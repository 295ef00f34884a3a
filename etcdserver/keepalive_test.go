package etcdserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// slow is a store with slow commits.
type slow struct {
	storage.Backend
	history.Historian
	storage.Transactor
	takes time.Duration
}

func (s *slow) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	select {
	case <-time.After(s.takes):
		return s.Transactor.Commit(ctx, ops)
	case <-ctx.Done():
		return nil, errors.Join(storage.ErrInconsistent, ctx.Err())
	}
}

// keepAliveStream is a stream without a network, so that it can use a fake clock.
type keepAliveStream struct {
	grpc.ServerStream
	ctx      context.Context
	requests chan int64
	answers  chan *pb.LeaseKeepAliveResponse
}

func (s *keepAliveStream) Context() context.Context { return s.ctx }

func (s *keepAliveStream) Recv() (*pb.LeaseKeepAliveRequest, error) {
	select {
	case id, more := <-s.requests:
		if !more {
			return nil, io.EOF
		}
		return &pb.LeaseKeepAliveRequest{ID: id}, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *keepAliveStream) Send(r *pb.LeaseKeepAliveResponse) error {
	select {
	case s.answers <- r:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// slowly runs a test with a fake clock, a server of a store whose commits take a second, and leases that a stream keeps alive.
func slowly(t *testing.T, ttl int64, test func(leases []int64, stream *keepAliveStream)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inmem.New(nil)
		defer b.Close()
		h, ok := storage.As[history.Historian](b)
		if !ok {
			t.Fatal("memory has no history")
		}
		s, err := etcdserver.New(&slow{b, h, b, time.Second}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		stream := &keepAliveStream{ctx: ctx, requests: make(chan int64), answers: make(chan *pb.LeaseKeepAliveResponse, 1000)}
		ended := make(chan error, 1)
		go func() { ended <- s.LeaseKeepAlive(stream) }()
		leases := make([]int64, 60)
		for i := range leases {
			leases[i] = int64(i + 1)
			go func() {
				if _, err := s.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: leases[i], TTL: ttl}); err != nil {
					t.Error(err)
				}
			}()
		}
		<-time.After(2 * time.Second)
		test(leases, stream)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Leases that are renewed in time do not wait for each other, however many a stream has and however slow the store is.
func TestLeasesDoNotWaitForEachOther(t *testing.T) {
	slowly(t, 30, func(leases []int64, stream *keepAliveStream) {
		for range 30 {
			for _, id := range leases {
				stream.requests <- id
			}
			<-time.After(10 * time.Second)
			if len(stream.answers) != len(leases) {
				t.Fatalf("%d leases were kept alive, %d answers came in time", len(leases), len(stream.answers))
			}
			for range leases {
				if r := <-stream.answers; r.TTL != 30 {
					t.Fatalf("lease %d is answered with a time to live of %d", r.ID, r.TTL)
				}
			}
		}
	})
}

// Each request is answered, even if there are many for one lease, and also at the end of the stream.
func TestEachKeepAliveIsAnswered(t *testing.T) {
	slowly(t, 30, func(leases []int64, stream *keepAliveStream) {
		wanted := map[int64]int{leases[0]: 100, leases[1]: 1, 1 << 40: 3}
		for id, n := range wanted {
			for range n {
				stream.requests <- id
			}
		}
		close(stream.requests)
		<-time.After(5 * time.Second)
		for len(stream.answers) > 0 {
			r := <-stream.answers
			if ttl := map[bool]int64{true: 30}[r.ID < 1<<40]; r.TTL != ttl {
				t.Errorf("lease %d is answered with a time to live of %d", r.ID, r.TTL)
			}
			wanted[r.ID]--
		}
		if got := fmt.Sprint(wanted[leases[0]], wanted[leases[1]], wanted[1<<40]); got != "0 0 0" {
			t.Errorf("not answered, of three leases: %s", got)
		}
	})
}
