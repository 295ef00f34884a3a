package etcdserver_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/inmem"
)

// lateReader is a stream whose client sends all of its requests before it reads a response.
type lateReader struct {
	grpc.ServerStream
	ctx      context.Context
	request  *pb.WatchCreateRequest
	left     atomic.Int64  // requests to send
	sentCh   chan struct{} // closed after the last request
	received chan *pb.WatchResponse
}

func (s *lateReader) Context() context.Context { return s.ctx }

func (s *lateReader) Recv() (*pb.WatchRequest, error) {
	if s.left.Load() == 0 {
		close(s.sentCh)
		<-s.ctx.Done()
		return nil, io.EOF
	}
	s.left.Add(-1)
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: s.request}}, nil
}

func (s *lateReader) Send(r *pb.WatchResponse) error {
	select {
	case <-s.sentCh:
		s.received <- r
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// requestWatches sends this many requests to a server over memory, until the server waits for the client.
func requestWatches(t *testing.T, requests int, request *pb.WatchCreateRequest) (client *lateReader, stop func()) {
	t.Helper()
	b := inmem.New(nil)
	s, err := etcdserver.New(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	client = &lateReader{ctx: ctx, request: request, sentCh: make(chan struct{}), received: make(chan *pb.WatchResponse, requests)}
	client.left.Store(int64(requests))
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(client) }()
	synctest.Wait()
	return client, func() {
		cancel()
		<-ended
		s.Close()
		_ = b.Close() // never fails
	}
}

// A client that does not read its responses does not make the server hold any number of them.
func TestUnreadResponsesAreBounded(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]*pb.WatchCreateRequest{
		"rejected": {Key: []byte("k"), StartRevision: -1},
		"accepted": {Key: []byte("k")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, stop := requestWatches(t, 10_000, request)
				defer stop()
				if client.left.Load() == 0 {
					t.Error("the server has read all requests without a response")
				}
			})
		})
	}
}

// A client may send many requests before it reads a response, and gets the responses in order.
func TestRequestsDoNotWaitForResponses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const requests = 1000
		client, stop := requestWatches(t, requests, &pb.WatchCreateRequest{Key: []byte("k")})
		defer stop()
		if n := len(client.received); n != requests {
			t.Fatalf("the client has %d responses, expected %d", n, requests)
		}
		for next := range int64(requests) {
			if r := <-client.received; !r.Created || r.WatchId != next {
				t.Fatalf("response %d: %v", next, r)
			}
		}
	})
}
