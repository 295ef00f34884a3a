package serve

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// answersFixture is a gRPC server with a resource of 1 MiB, and a client.
type answersFixture struct {
	*testing.T
	answers   *answers
	stalled   atomic.Int64
	resources *service.Server // its calls have no timeout
	client    *grpc.ClientConn
	id        *resourcepb.ID
	data      *anypb.Any
}

func newAnswersFixture(t *testing.T, total int64, timeout time.Duration) *answersFixture {
	t.Helper()
	f := &answersFixture{T: t}
	f.answers = &answers{
		budget: newBudget(total, false), turns: newTurns(1, false), timeout: timeout, logger: slog.New(slog.DiscardHandler), countStalled: func() { f.stalled.Add(1) },
	}
	backend := inmem.New(nil)
	f.resources = service.New(backend, registry.NewOpen(registry.Type{}), nil)
	server := grpc.NewServer(grpc.Creds(newHandshakes(insecure.NewCredentials())), grpc.StatsHandler(f.answers), grpc.ForceServerCodecV2(newSentCodec()),
		grpc.ChainUnaryInterceptor(f.answers.unary), grpc.ChainStreamInterceptor(f.answers.stream))
	f.resources.Register(server)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = serveGRPC(server, listener) }()
	f.client, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(1<<16)) // otherwise the window may grow until an unread answer fits
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.client.Close() // it was used by this test only
		server.Stop()
		_ = backend.Close() // its calls have ended
	})
	data, err := anypb.New(wrapperspb.String(strings.Repeat("x", 1_000_000)))
	if err != nil {
		t.Fatal(err)
	}
	f.data = data
	f.id = &resourcepb.ID{Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Album"}, Name: "a"}
	written, err := f.resources.Write(t.Context(), &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: f.id, Data: data}})
	if err != nil {
		t.Fatal(err)
	}
	f.id = written.GetResource().GetId()
	return f
}

// open calls a method and reads none of its answers.
func (f *answersFixture) open(method string, request any, options ...grpc.CallOption) grpc.ClientStream {
	f.Helper()
	return f.openIn(f.Context(), method, request, options...)
}

// openIn is open with a context.
func (f *answersFixture) openIn(ctx context.Context, method string, request any, options ...grpc.CallOption) grpc.ClientStream {
	f.Helper()
	stream, err := f.client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, options...)
	if err == nil {
		err = stream.SendMsg(request)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		f.Fatal(err)
	}
	return stream
}

// until waits for a condition.
func (f *answersFixture) until(what string, condition func() bool) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	for !condition() {
		select {
		case <-ctx.Done():
			f.Fatal(what)
		case <-time.After(time.Millisecond):
		}
	}
}

// A client that does not read the answer to a call, or its watch, is disconnected, and its bytes do not count any more.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	for method, request := range map[string]func(*resourcepb.ID) any{
		resourcegrpc.ResourceService_Read_FullMethodName: func(id *resourcepb.ID) any { return &resourcepb.ReadRequest{Id: id} },
		resourcegrpc.ResourceService_WatchList_FullMethodName: func(id *resourcepb.ID) any {
			return &resourcepb.WatchListRequest{Type: id.GetType()}
		},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			f := newAnswersFixture(t, 64<<20, 100*time.Millisecond)
			stream := f.open(method, request(f.id))
			f.until("a client that does not read is connected", func() bool { return f.stalled.Load() >= 1 })
			f.until("the bytes of a client that was disconnected count", func() bool { return f.answers.budget.unread() == 0 })
			if err := stream.RecvMsg(&resourcepb.ReadResponse{}); status.Code(err) != codes.Unavailable {
				t.Errorf("the client got %v", err)
			}
		})
	}
}

// Answers beyond the budget are refused. A write is not made, or answered.
func TestAnswersBeyondBudget(t *testing.T) {
	t.Parallel()
	f := newAnswersFixture(t, 3_500_000, time.Hour)
	for range 3 {
		f.open(resourcegrpc.ResourceService_Read_FullMethodName, &resourcepb.ReadRequest{Id: f.id})
	}
	f.until("unread answers do not count", func() bool { return f.answers.budget.unread() > 3_000_000 })
	c := resourcegrpc.NewResourceServiceClient(f.client)
	_, err := c.Read(t.Context(), &resourcepb.ReadRequest{Id: f.id})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a read beyond the budget: %v", err)
	}
	if err := f.answers.budget.reserve("", 500_000, true); err != nil {
		t.Fatal(err)
	}
	if _, err := grpc_health_v1.NewHealthClient(f.client).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("a probe beyond the budget: %v", err)
	}
	f.answers.budget.release("", 500_000)
	w, err := c.WatchList(t.Context(), &resourcepb.WatchListRequest{Type: f.id.GetType()})
	for err == nil {
		_, err = w.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a watch beyond the budget: %v", err)
	}
	large, err := anypb.New(wrapperspb.String(strings.Repeat("y", 1_000_000)))
	if err != nil {
		t.Fatal(err)
	}
	resource := &resourcepb.Resource{Id: &resourcepb.ID{Type: f.id.GetType(), Name: "b"}, Data: large}
	f.open(resourcegrpc.ResourceService_Write_FullMethodName, &resourcepb.WriteRequest{Resource: resource})
	f.until("a write is not answered", func() bool { return f.answers.budget.unread() > 4_000_000 })
	if _, err := c.Write(t.Context(), &resourcepb.WriteRequest{Resource: resource}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a write beyond the budget: %v", err)
	}
}

// A list or watch is refused before it is read if its answer would probably be refused.
func TestListsNearBudget(t *testing.T) {
	t.Parallel()
	f := newAnswersFixture(t, 64<<20, time.Hour)
	c := resourcegrpc.NewResourceServiceClient(f.client)
	if err := f.answers.budget.reserve("", 61<<20, false); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(t.Context(), &resourcepb.ReadRequest{Id: f.id}); err != nil {
		t.Errorf("a read within the budget: %v", err)
	}
	request := &resourcepb.ListRequest{Type: f.id.GetType(), Tenancy: f.id.GetTenancy(), Limit: 1}
	if _, err := c.List(t.Context(), request); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a list near the budget: %v", err)
	}
	w, err := c.WatchList(t.Context(), &resourcepb.WatchListRequest{Type: f.id.GetType()})
	if err == nil {
		_, err = w.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a watch near the budget: %v", err)
	}
	f.answers.budget.release("", 61<<20)
	if _, err := c.List(t.Context(), request); err != nil {
		t.Errorf("a list within the budget: %v", err)
	}
}

// A list without a limit takes several turns, because it may hold several times the bytes of a page.
func TestTurnsOfUnlimitedList(t *testing.T) {
	t.Parallel()
	f := newAnswersFixture(t, 64<<20, time.Hour)
	f.answers.turns = newTurns(4, false)
	c := resourcegrpc.NewResourceServiceClient(f.client)
	release, err := f.answers.turns.take(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	request := &resourcepb.ListRequest{Type: f.id.GetType(), Tenancy: f.id.GetTenancy(), Limit: 1}
	if _, err := c.List(t.Context(), request); err != nil {
		t.Errorf("a page beside a list: %v", err)
	}
	request.Limit = 0
	waiting, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := c.List(waiting, request); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a list without a limit beside a list: %v", err)
	}
	release()
	if _, err := c.List(t.Context(), request); err != nil {
		t.Errorf("a list without a limit: %v", err)
	}
}

// A list waits while the snapshot of an unread watch has the only turn, and is served when the client of the watch is disconnected or the
// snapshot has ended.
func TestTurns(t *testing.T) {
	t.Parallel()
	f := newAnswersFixture(t, 64<<20, time.Hour)
	c := resourcegrpc.NewResourceServiceClient(f.client)
	list := func(ctx context.Context) error {
		_, err := c.List(ctx, &resourcepb.ListRequest{Type: f.id.GetType(), Tenancy: f.id.GetTenancy()})
		return err
	}
	watching, leave := context.WithCancel(t.Context())
	defer leave()
	w, err := c.WatchList(watching, &resourcepb.WatchListRequest{Type: f.id.GetType()})
	if err != nil {
		t.Fatal(err)
	}
	for ended := false; !ended; {
		ev, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		ended = ev.GetEndOfSnapshot() != nil
	}
	if err := list(t.Context()); err != nil {
		t.Errorf("a list beside a watch after its snapshot: %v", err)
	}
	leave()
	for err == nil {
		_, err = w.Recv()
	}
	// Its second resource does not fit into the window of the stream.
	for range 2 {
		copied := &resourcepb.Resource{Id: &resourcepb.ID{Type: f.id.GetType(), Name: "b"}, Data: f.data}
		if _, err := c.Write(t.Context(), &resourcepb.WriteRequest{Resource: copied}); err != nil {
			t.Fatal(err)
		}
	}
	f.until("the answers that were read count", func() bool { return f.answers.budget.unread() == 0 })
	unread, cancel := context.WithCancel(t.Context())
	stream := f.openIn(unread, resourcegrpc.ResourceService_WatchList_FullMethodName, &resourcepb.WatchListRequest{Type: f.id.GetType()})
	f.until("the watch sends nothing", func() bool { return f.answers.budget.unread() > 1_900_000 })
	waiting, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := list(waiting); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a list without a turn: %v", err)
	}
	cancel()
	if err := list(t.Context()); err != nil {
		t.Errorf("a list after the watch has ended: %v", err)
	}
	_ = stream.RecvMsg(&resourcepb.WatchEvent{}) // it was canceled
}

// An answer to a client that compresses its requests counts, too, until it has been sent.
func TestUnreadAnswersToCompressedRequests(t *testing.T) {
	t.Parallel()
	f := newAnswersFixture(t, 64<<20, 100*time.Millisecond)
	random := make([]byte, 1_000_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random) // it never fails
	data, err := anypb.New(wrapperspb.Bytes(random))
	if err != nil {
		t.Fatal(err)
	}
	id := &resourcepb.ID{Type: f.id.GetType(), Name: "random"}
	if _, err := f.resources.Write(t.Context(), &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: id, Data: data}}); err != nil {
		t.Fatal(err)
	}
	f.open(resourcegrpc.ResourceService_Read_FullMethodName, &resourcepb.ReadRequest{Id: id}, grpc.UseCompressor(gzip.Name))
	f.until("a client that does not read is connected", func() bool { return f.stalled.Load() >= 1 })
	f.until("the bytes of a client that was disconnected count", func() bool { return f.answers.budget.unread() == 0 })
}

// unread returns the bytes of all callers.
func (b *budget) unread() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
