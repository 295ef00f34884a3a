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

// responseBuffer is the number of responses that a server can send before the client receives them.
const responseBuffer = 16

// stream connects a client and a server in one process without copying. A message belongs to its receiver, except that responses may share
// memory with others.
//
// Requests are queued without a limit, responses with one. The watch client sends and receives in a single goroutine, so two bounded queues
// could deadlock. A client sends few requests.
type stream[Request, Response any] struct {
	ctx       context.Context
	responses chan *Response

	lock     sync.Mutex
	requests []*Request
	closed   bool          // no further requests from the client
	notify   chan struct{} // holds a token if requests or closed have changed

	done chan struct{} // closed when the server has ended; responses is never closed, because goroutines of the server may still send
	err  error         // of the server, set before done is closed; nil on success
}

// streams holds the streams of one client.
type streams struct {
	clientCtx context.Context // of the client; ends all streams

	lock   sync.Mutex
	closed bool           // rejects new streams
	group  sync.WaitGroup // the goroutines of the streams
}

// errClosed ends the calls of a closed client and the watches of a closed server. gRPC's own clients use the same code, and callers
// do not retry after it.
var errClosed = status.Error(codes.Canceled, "kubernetes: the store is closed")

// close rejects new streams and waits until all others have ended. The client's context must have ended before.
func (all *streams) close() {
	all.lock.Lock()
	all.closed = true
	all.lock.Unlock()
	all.group.Wait()
}

// startStream runs serve in a goroutine and returns the client's end of the stream.
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

// clientEnd implements grpc.BidiStreamingClient and grpc.ServerStreamingClient. Only generated code uses the other methods of the embedded
// interface.
type clientEnd[Request, Response any] struct {
	grpc.ClientStream
	stream *stream[Request, Response]
}

func (c *clientEnd[Request, Response]) Context() context.Context { return c.stream.ctx }

func (c *clientEnd[Request, Response]) Send(request *Request) error {
	s := c.stream
	if s.ctx.Err() != nil {
		return io.EOF // as in gRPC: Recv returns the reason
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

// serverEnd implements grpc.BidiStreamingServer and grpc.ServerStreamingServer.
type serverEnd[Request, Response any] struct {
	grpc.ServerStream
	stream *stream[Request, Response]
}

func (e *serverEnd[Request, Response]) Context() context.Context { return e.stream.ctx }

// Clients in this process do not use headers.

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

// errNoRequest reports that there is no unreceived request.
var errNoRequest = errors.New("nothing yet")

// next returns the oldest request, or errNoRequest if there is none. After the last request of a client that has closed its side, it
// returns io.EOF.
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

// wake wakes a blocked Recv of the server.
func (s *stream[Request, Response]) wake() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}
