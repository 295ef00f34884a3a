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

// deafClient is a stream whose client requests watches and does not read.
type deafClient struct {
	grpc.ServerStream
	ctx      context.Context
	requests atomic.Int64
	request  *pb.WatchCreateRequest
}

func (s *deafClient) Context() context.Context { return s.ctx }

const manyRequests = 10_000

func (s *deafClient) Recv() (*pb.WatchRequest, error) {
	if s.requests.Add(1) > manyRequests {
		<-s.ctx.Done()
		return nil, io.EOF
	}
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: s.request}}, nil
}

func (s *deafClient) Send(*pb.WatchResponse) error {
	<-s.ctx.Done()
	return s.ctx.Err()
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
				b := inmem.New(nil)
				defer b.Close()
				s, err := etcdserver.New(b, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				ctx, cancel := context.WithCancel(t.Context())
				client := &deafClient{ctx: ctx, request: request}
				ended := make(chan error, 1)
				go func() { ended <- s.Watch(client) }()
				synctest.Wait()
				if n := client.requests.Load(); n >= manyRequests {
					t.Errorf("the server has read %d requests without a response", n)
				}
				cancel()
				<-ended
			})
		})
	}
}

// lateReader is a stream whose client sends all of its requests before it reads a response.
type lateReader struct {
	grpc.ServerStream
	ctx      context.Context
	left     int
	sentCh   chan struct{} // closed after the last request
	received chan *pb.WatchResponse
}

func (s *lateReader) Context() context.Context { return s.ctx }

func (s *lateReader) Recv() (*pb.WatchRequest, error) {
	if s.left == 0 {
		close(s.sentCh)
		<-s.ctx.Done()
		return nil, io.EOF
	}
	s.left--
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}}, nil
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

// A client may send many requests before it reads a response, and gets the responses in order.
func TestRequestsDoNotWaitForResponses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inmem.New(nil)
		defer b.Close()
		s, err := etcdserver.New(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		const requests = 1000
		client := &lateReader{ctx: ctx, left: requests, sentCh: make(chan struct{}), received: make(chan *pb.WatchResponse, requests)}
		ended := make(chan error, 1)
		go func() { ended <- s.Watch(client) }()
		synctest.Wait()
		if n := len(client.received); n != requests {
			t.Errorf("the client has %d responses, expected %d", n, requests)
		}
		cancel()
		<-ended
		close(client.received)
		next := int64(0)
		for r := range client.received {
			if !r.Created || r.WatchId != next {
				t.Fatalf("response %d: %v", next, r)
			}
			next++
		}
	})
}
