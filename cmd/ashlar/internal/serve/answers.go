package serve

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// answers bounds the messages that gRPC calls send, in bytes and in time: a client that reads nothing for a while is disconnected. A message
// counts until the gRPC server has written it to the connection, which may be after the end of its call.
type answers struct {
	budget       *budget
	turns        *turns
	timeout      time.Duration
	logger       *slog.Logger
	countStalled func() // counts a disconnected client
}

// sender is the part of a connection that has unsent messages.
type sender struct {
	mu       sync.Mutex
	isClosed bool // the connection has ended
	unsent   map[*answer]struct{}
}

// senderKey is the context key of the sender of a connection.
type senderKey struct{}

// answerKey is the context key of the answer of a call.
type answerKey struct{}

// answer has the unsent messages of a call.
type answer struct {
	all    *answers
	sender *sender
	caller string
	timer  *time.Timer // disconnects the client; it runs while there are unsent messages
	bytes  int64       // guarded by sender.mu
}

// TagConn returns the context of a connection, with its sender.
func (*answers) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, senderKey{}, &sender{unsent: map[*answer]struct{}{}})
}

// HandleConn drops the unsent messages of a connection that has ended.
func (*answers) HandleConn(ctx context.Context, event stats.ConnStats) {
	if _, ended := event.(*stats.ConnEnd); !ended {
		return
	}
	if s, ok := ctx.Value(senderKey{}).(*sender); ok {
		s.end()
	}
}

func (s *sender) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isClosed = true
	for o := range s.unsent {
		o.timer.Stop()
		o.all.budget.release(o.caller, o.bytes)
		o.bytes = 0
	}
	clear(s.unsent)
}

// TagRPC returns the context of a call, with its answer.
func (a *answers) TagRPC(ctx context.Context, call *stats.RPCTagInfo) context.Context {
	s, ok := ctx.Value(senderKey{}).(*sender)
	if !ok {
		return ctx
	}
	out := &answer{all: a, sender: s, caller: principalOf(ctx)}
	conn, address := rawConn(ctx)
	out.timer = time.AfterFunc(time.Hour, func() {
		a.logger.Info("a client does not read its answers and is disconnected", "method", call.FullMethodName, "peer", address, "after", a.timeout)
		a.countStalled()
		if conn != nil {
			_ = conn.Close() // fails only on a connection that has ended
		}
	})
	out.timer.Stop()
	return context.WithValue(ctx, answerKey{}, out)
}

// HandleRPC does nothing.
func (*answers) HandleRPC(context.Context, stats.RPCStats) {}

// rawConn returns the connection of a call and the client's address.
func rawConn(ctx context.Context) (net.Conn, string) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, ""
	}
	info, _ := p.AuthInfo.(closableInfo)
	return info.raw, p.Addr.String()
}

// add counts the bytes of a message that is about to be sent. The answer to a write is sent in any case, because the write was made.
func (o *answer) add(message proto.Message) (*sentMessage, error) {
	size := proto.Size(message)
	o.sender.mu.Lock()
	defer o.sender.mu.Unlock()
	if err := o.all.budget.reserve(o.caller, int64(size), answersWrite(message)); err != nil {
		return nil, err
	}
	if o.sender.isClosed {
		o.all.budget.release(o.caller, int64(size))
		return &sentMessage{message, size, func() {}}, nil // the message will not be sent
	}
	if o.bytes == 0 {
		o.sender.unsent[o] = struct{}{}
		o.timer.Reset(o.all.timeout)
	}
	o.bytes += int64(size)
	return &sentMessage{message, size, sync.OnceFunc(func() { o.releaseBytes(size) })}, nil
}

// releaseBytes removes the bytes of a message that was sent, or dropped with its call.
func (o *answer) releaseBytes(size int) {
	o.sender.mu.Lock()
	defer o.sender.mu.Unlock()
	if o.sender.isClosed {
		return
	}
	o.all.budget.release(o.caller, int64(size))
	if o.bytes -= int64(size); o.bytes > 0 {
		o.timer.Reset(o.all.timeout)
		return
	}
	o.timer.Stop()
	delete(o.sender.unsent, o)
}

// sendUncompressed makes the gRPC server send the messages of a call uncompressed: it frees the buffer of a compressed message before it has
// written it to the connection.
func sendUncompressed(ctx context.Context) {
	_ = grpc.SetSendCompressor(ctx, encoding.Identity) // fails only for calls that send nothing
}

// answersWrite reports whether a message is the answer to a write.
func answersWrite(m proto.Message) bool {
	switch m.(type) {
	case *resourcepb.WriteResponse, *resourcepb.WriteStatusResponse, *resourcepb.DeleteResponse:
		return true
	}
	return false
}

// turnsOf returns the number of turns for a request, 0 unless it is for a list. The answer to a list without a limit can have maxList bytes.
func turnsOf(request any) int64 {
	switch r := request.(type) {
	case *resourcepb.ListAtRequest:
		return 1
	case interface{ GetLimit() int32 }: // ListRequest and ListByOwnerRequest
		if r.GetLimit() == 0 {
			return maxList / maxTurn
		}
		return 1
	}
	return 0
}

// hasSnapshot reports whether a request of a stream is for resources or changes that are stored already.
func hasSnapshot(request any) bool {
	switch r := request.(type) {
	case *resourcepb.WatchListRequest:
		return r.GetCursor() == ""
	case *resourcepb.WatchStoreRequest:
		return r.GetCursor() == ""
	case *resourcepb.ChangesRequest:
		return true
	}
	return false
}

// endsSnapshot reports whether a message of a stream ends its snapshot.
func endsSnapshot(message any) bool {
	switch m := message.(type) {
	case *resourcepb.WatchEvent:
		return m.GetEndOfSnapshot() != nil
	case *resourcepb.StoreEvent:
		return m.GetAction() == resourcepb.Action_ACTION_START
	}
	return false
}

// read waits for the turns of a list or snapshot. It refuses one whose answer would probably be refused after it was read.
func (a *answers) read(ctx context.Context, caller string, n int64) (release func(), err error) {
	if err := a.budget.check(caller, maxTurn); err != nil {
		return nil, err
	}
	release, err = a.turns.take(ctx, caller, n)
	if err != nil {
		return nil, err
	}
	if err := a.budget.check(caller, maxTurn); err != nil { // another call can have used it
		release()
		return nil, err
	}
	return release, nil
}

func (a *answers) unary(ctx context.Context, req any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	out, ok := ctx.Value(answerKey{}).(*answer)
	if !ok || isProbe(call.FullMethod) { // a probe must not fail because clients do not read
		return next(ctx, req)
	}
	if err := a.budget.check(out.caller, 1); err != nil {
		return nil, err
	}
	if n := turnsOf(req); n > 0 {
		release, err := a.read(ctx, out.caller, n)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	sendUncompressed(ctx)
	message, err := next(ctx, req)
	if err != nil {
		return nil, err
	}
	m, ok := message.(proto.Message)
	if !ok {
		return message, nil
	}
	return out.add(m)
}

func (a *answers) stream(srv any, s grpc.ServerStream, call *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	out, ok := s.Context().Value(answerKey{}).(*answer)
	if !ok || isProbe(call.FullMethod) {
		return next(srv, s)
	}
	sendUncompressed(s.Context())
	bounded := &answerStream{ServerStream: s, out: out}
	defer bounded.endTurn()
	return next(srv, bounded)
}

// answerStream is a stream whose messages are bounded. It has a turn during its snapshot.
type answerStream struct {
	grpc.ServerStream
	out     *answer
	release func() // ends the turn; nil without one
}

func (s *answerStream) endTurn() {
	if s.release != nil {
		s.release()
		s.release = nil
	}
}

// RecvMsg receives a request, and waits for a turn if its answer has a snapshot.
func (s *answerStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && s.release == nil && hasSnapshot(m) {
		s.release, err = s.out.all.read(s.Context(), s.out.caller, 1)
	}
	return err
}

// SendMsg sends a message.
func (s *answerStream) SendMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return s.ServerStream.SendMsg(m)
	}
	counted, err := s.out.add(message)
	if err != nil {
		return err
	}
	err = s.ServerStream.SendMsg(counted)
	if endsSnapshot(m) {
		s.endTurn()
	}
	return err
}
