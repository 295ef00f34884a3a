package kubernetes

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// responseBuffer is how many responses a server may be ahead of the client that receives them.
const responseBuffer = 16

// stream joins a client and a server in one process: what one sends, the other receives, without a copy. Messages belong to the
// receiver, except that responses may share what they hold with others.
//
// Requests wait without bound, responses with one. The watch client sends and receives in a single goroutine, so two bounded queues
// could wait for each other; the requests of a client are few.
type stream[Request, Response any] struct {
	ctx       context.Context
	responses chan *Response

	lock     sync.Mutex
	requests []*Request
	closed   bool          // by the client: no further requests
	notify   chan struct{} // holds a token if requests or closed have changed

	done chan struct{} // closed when the server has ended; responses never is, as what the server has left behind may still send
	err  error         // of the server, set before over is closed; nil if it ended well
}

// streams are the streams of one client.
type streams struct {
	clientCtx context.Context // of the client: ends them all

	lock   sync.Mutex
	closed bool           // none begins any more
	group  sync.WaitGroup // the goroutines that serve them
}

// errClosed is what calls of a client, or watches of a server, that was closed end with. It is the code of gRPC's own clients, after which
// nobody tries again.
var errClosed = status.Error(codes.Canceled, "kubernetes: the store is closed")

// close waits for the end of all streams, which that of the client's life has brought about, and lets none begin.
func (all *streams) close() {
	all.lock.Lock()
	all.closed = true
	all.lock.Unlock()
	all.group.Wait()
}

// startStream runs serve in a goroutine of its own and returns the client's end of the stream.
func startStream[Request, Response any](
	ctx context.Context, all *streams, serve func(*serverEnd[Request, Response]) error,
) (*clientEnd[Request, Response], error) {
	all.lock.Lock()
	defer all.lock.Unlock()
	if all.closed {
		return nil, errClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(all.clientCtx, cancel)
	s := &stream[Request, Response]{
		ctx: ctx, responses: make(chan *Response, responseBuffer), notify: make(chan struct{}, 1), done: make(chan struct{}),
	}
	all.group.Go(func() {
		s.err = serve(&serverEnd[Request, Response]{stream: s})
		close(s.done)
		stop()
		cancel()
	})
	return &clientEnd[Request, Response]{stream: s}, nil
}

// clientEnd is grpc.BidiStreamingClient and grpc.ServerStreamingClient. Methods of the embedded interface that it does not have are
// for generated code only.
type clientEnd[Request, Response any] struct {
	grpc.ClientStream
	stream *stream[Request, Response]
}

func (c *clientEnd[Request, Response]) Context() context.Context { return c.stream.ctx }

func (c *clientEnd[Request, Response]) Send(request *Request) error {
	s := c.stream
	if s.ctx.Err() != nil {
		return io.EOF // as gRPC has it: Recv returns the reason
	}
	s.lock.Lock()
	s.requests = append(s.requests, request)
	s.lock.Unlock()
	s.wake()
	return nil
}

func (c *clientEnd[Request, Response]) CloseSend() error {
	s := c.stream
	s.lock.Lock()
	s.closed = true
	s.lock.Unlock()
	s.wake()
	return nil
}

func (c *clientEnd[Request, Response]) Recv() (*Response, error) {
	s := c.stream
	select {
	case response := <-s.responses:
		return response, nil
	case <-s.done:
	}
	select {
	case response := <-s.responses: // sent before the end
		return response, nil
	default:
	}
	if s.err != nil {
		return nil, s.err
	}
	return nil, io.EOF
}

// serverEnd is grpc.BidiStreamingServer and grpc.ServerStreamingServer, as clientEnd is what clients expect.
type serverEnd[Request, Response any] struct {
	grpc.ServerStream
	stream *stream[Request, Response]
}

func (e *serverEnd[Request, Response]) Context() context.Context { return e.stream.ctx }

// Headers tell clients of other processes about the server; nobody looks at them here.

func (e *serverEnd[Request, Response]) SetHeader(metadata.MD) error  { return nil }
func (e *serverEnd[Request, Response]) SendHeader(metadata.MD) error { return nil }
func (e *serverEnd[Request, Response]) SetTrailer(metadata.MD)       {}

func (e *serverEnd[Request, Response]) Send(response *Response) error {
	select {
	case e.stream.responses <- response:
		return nil
	case <-e.stream.ctx.Done():
		return e.stream.ctx.Err()
	}
}

func (e *serverEnd[Request, Response]) Recv() (*Request, error) {
	s := e.stream
	for {
		if err := s.ctx.Err(); err != nil {
			return nil, err
		}
		request, err := s.next()
		if !errors.Is(err, errNoRequest) {
			return request, err
		}
		select {
		case <-s.notify:
		case <-s.ctx.Done():
		}
	}
}

// errNoRequest says that the client has sent nothing that was not received.
var errNoRequest = errors.New("nothing yet")

// next takes the oldest request, if there is one; after the last one of a client that has closed its side comes io.EOF.
func (s *stream[Request, Response]) next() (*Request, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case len(s.requests) > 0:
		request := s.requests[0]
		s.requests[0] = nil
		s.requests = s.requests[1:]
		return request, nil
	case s.closed:
		return nil, io.EOF
	default:
		return nil, errNoRequest
	}
}

// wake has a Recv of the server that waits look again.
func (s *stream[Request, Response]) wake() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}
