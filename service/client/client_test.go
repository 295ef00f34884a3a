package client_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/client"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

// waitTimeout bounds the wait for an expected event.
const waitTimeout = 2 * time.Minute

var (
	albums = storage.UnversionedType{Group: "demo", Kind: "Album"}
	shop   = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
)

func album(name, text string) *resourcepb.Resource {
	data, err := anypb.New(wrapperspb.String(text))
	if err != nil {
		panic(err)
	}
	return &resourcepb.Resource{
		Id:   &resourcepb.ID{Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Album"}, Tenancy: shop, Name: name},
		Data: data,
	}
}

// server is a resource service at an address, which can be stopped and restarted.
type server struct {
	t       *testing.T
	store   storage.Backend
	address string
	grpc    *grpc.Server
	options []grpc.ServerOption
}

func newServer(t *testing.T, options ...grpc.ServerOption) *server {
	t.Helper()
	s := &server{t: t, store: inmem.New(nil), address: "127.0.0.1:0", options: options}
	t.Cleanup(func() { require.NoError(t, s.store.Close()) })
	s.start()
	t.Cleanup(func() { s.grpc.Stop() })
	return s
}

func (s *server) start() {
	s.t.Helper()
	var l net.Listener
	require.Eventually(s.t, func() (free bool) { // another process may have taken the port of a stopped server
		var err error
		l, err = (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", s.address)
		return err == nil
	}, waitTimeout, 10*time.Millisecond)
	s.address = l.Addr().String()
	made := grpc.NewServer(s.options...)
	s.grpc = made
	service.New(s.store, registry.NewOpen(registry.Type{}), nil).Register(made)
	go func() { _ = made.Serve(l) }() // it ends when it is stopped
}

func (s *server) dial(t *testing.T) *client.Backend {
	t.Helper()
	b, err := client.Dial(client.Options{Address: s.address})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func timeoutContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	return ctx
}

// next returns a short description of the next event.
func next(t *testing.T, w storage.Watch) string {
	t.Helper()
	ev, err := w.Next(timeoutContext(t))
	require.NoError(t, err)
	switch {
	case ev.GetEndOfSnapshot() != nil:
		return "end of snapshot"
	case ev.GetDelete() != nil:
		return "delete " + ev.GetDelete().GetResource().GetId().GetName()
	}
	return "upsert " + ev.GetUpsert().GetResource().GetId().GetName()
}

// The service rejects the same calls as a store.
func TestErrors(t *testing.T) {
	t.Parallel()
	ctx, b := timeoutContext(t), newServer(t).dial(t)
	stored, err := b.WriteCAS(ctx, album("a", "1"))
	require.NoError(t, err)
	read := func(change func(id *resourcepb.ID)) error {
		id := album("a", "").GetId()
		change(id)
		_, err := b.Read(ctx, storage.StrongConsistency, id)
		return err
	}
	write := func(change func(res *resourcepb.Resource)) error {
		res := album("a", "2")
		res.Id.Uid, res.Version = stored.GetId().GetUid(), stored.GetVersion()
		change(res)
		_, err := b.WriteCAS(ctx, res)
		return err
	}
	watch := func(cursor string) error {
		_, err := b.WatchFrom(ctx, albums, shop, "", cursor)
		return err
	}
	page := func(opts storage.ListOptions) error {
		_, err := b.ListPage(ctx, albums, shop, "", opts)
		return err
	}
	list := func(typ storage.UnversionedType) error {
		_, err := b.List(ctx, storage.StrongConsistency, typ, shop, "")
		return err
	}
	for name, tc := range map[string]struct{ err, want error }{
		"nothing there":       {read(func(id *resourcepb.ID) { id.Name = "none" }), storage.ErrNotFound},
		"another uid":         {read(func(id *resourcepb.ID) { id.Uid = "other" }), storage.ErrNotFound},
		"no name to read":     {read(func(id *resourcepb.ID) { id.Name = "" }), storage.ErrInvalid},
		"no type to read":     {read(func(id *resourcepb.ID) { id.Type = nil }), storage.ErrInvalid},
		"odd name":            {read(func(id *resourcepb.ID) { id.Name = "a\n\xc3\xa9" }), storage.ErrInvalid},
		"no id to write":      {write(func(res *resourcepb.Resource) { res.Id = nil }), storage.ErrInvalid},
		"no type to write":    {write(func(res *resourcepb.Resource) { res.Id.Type = nil }), storage.ErrInvalid},
		"garbage for version": {write(func(res *resourcepb.Resource) { res.Version = "garbage" }), storage.ErrCASFailure},
		"another incarnation": {write(func(res *resourcepb.Resource) { res.Id.Uid = "other" }), storage.ErrWrongUid},
		"too large":           {write(func(res *resourcepb.Resource) { res.Data.Value = make([]byte, 2<<20) }), storage.ErrTooLarge},
		"too large to send":   {write(func(res *resourcepb.Resource) { res.Data.Value = make([]byte, 5<<20) }), storage.ErrTooLarge},
		"another version":     {b.DeleteCAS(ctx, stored.GetId(), "other"), storage.ErrCASFailure},
		"no id to delete":     {b.DeleteCAS(ctx, nil, ""), storage.ErrInvalid},
		"owner without uid":   {second(b.OwnerReferences(ctx, album("a", "").GetId())), storage.ErrInvalid},
		"no cursor":           {watch(""), storage.ErrInvalid},
		"no cursor of ours":   {watch("garbage"), storage.ErrInvalid},
		"negative limit":      {page(storage.ListOptions{Limit: -1}), storage.ErrInvalid},
		"no token of ours":    {page(storage.ListOptions{Continue: "garbage"}), storage.ErrInvalid},
		"revisions":           {page(storage.ListOptions{Revision: 1}), storage.ErrInvalid},
		"half a wildcard":     {list(storage.UnversionedType{Group: "*", Kind: "Album"}), storage.ErrInvalid},
	} {
		require.ErrorIs(t, tc.err, tc.want, name)
		require.NotErrorIs(t, tc.err, storage.ErrInconsistent, name)
	}
	var mismatch storage.GroupVersionMismatchError
	require.ErrorAs(t, read(func(id *resourcepb.ID) { id.Type.GroupVersion = "v2" }), &mismatch)
	require.Equal(t, stored.GetVersion(), mismatch.Stored.GetVersion())
	require.NoError(t, read(func(id *resourcepb.ID) { id.Type.GroupVersion = "" }), "any group version")
}

func second[T any](_ T, err error) error { return err }

// Calls and watches of a closed backend report that it is closed, whatever else is wrong.
func TestClosed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.dial(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.WriteCAS(over, album("a", "1"))
	require.Equal(t, context.Canceled, err, "nothing was sent")
	watch, err := b.WatchList(timeoutContext(t), albums, shop, "")
	require.NoError(t, err)
	require.Equal(t, "end of snapshot", next(t, watch))
	require.NoError(t, b.Close())
	require.NoError(t, b.Close(), "twice is fine")
	_, err = watch.Next(over)
	require.ErrorIs(t, err, storage.ErrClosed)
	require.ErrorIs(t, err, storage.ErrWatchClosed)
	watch.Close()
	_, err = watch.Next(over)
	require.ErrorIs(t, err, storage.ErrClosed, "the first error stays")
	for name, err := range map[string]error{
		"read":   second(b.Read(over, storage.StrongConsistency, nil)),
		"write":  second(b.WriteCAS(over, nil)),
		"delete": b.DeleteCAS(over, nil, ""),
		"list":   second(b.List(over, storage.StrongConsistency, albums, shop, "")),
		"page":   second(b.ListPage(over, albums, shop, "", storage.ListOptions{})),
		"owned":  second(b.OwnerReferences(over, nil)),
		"watch":  second(b.WatchList(over, albums, shop, "")),
		"resume": second(b.WatchFrom(over, albums, shop, "", "x")),
	} {
		require.ErrorIs(t, err, storage.ErrClosed, name)
	}
}

// A closed watch drops the events it had already received.
func TestClosedWatchDropsEvents(t *testing.T) {
	t.Parallel()
	b := newServer(t).dial(t)
	for i := range 20 {
		_, err := b.WriteCAS(timeoutContext(t), album("a"+strconv.Itoa(i), "1"))
		require.NoError(t, err)
	}
	for range 20 { // whether an event is in transit depends on the scheduler
		watch, err := b.WatchList(timeoutContext(t), albums, shop, "")
		require.NoError(t, err)
		require.Equal(t, "upsert a0", next(t, watch))
		watch.Close()
		_, err = watch.Next(timeoutContext(t))
		require.ErrorIs(t, err, storage.ErrWatchClosed)
	}
}

// The snapshot is taken before WatchList returns: later writes are changes.
func TestSnapshotAtCall(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b, ctx := s.dial(t), timeoutContext(t)
	for i := range 20 {
		prefix := "w" + strconv.Itoa(i)
		watch, err := b.WatchList(ctx, albums, shop, prefix)
		require.NoError(t, err)
		written := album(prefix, "1")
		written.Id.Uid = "uid-" + prefix
		_, err = s.store.WriteCAS(ctx, written)
		require.NoError(t, err)
		require.Equal(t, "end of snapshot", next(t, watch))
		require.Equal(t, "upsert "+prefix, next(t, watch))
		watch.Close()
	}
}

// A watch resumes when the server comes back: no event is missing or repeated.
func TestWatchResumesAfterRestart(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b, ctx := s.dial(t), timeoutContext(t)
	watch, err := b.WatchList(ctx, albums, shop, "")
	require.NoError(t, err)
	defer watch.Close()
	require.Equal(t, "end of snapshot", next(t, watch))
	for i := range 5 {
		name := "before" + strconv.Itoa(i)
		_, err := b.WriteCAS(ctx, album(name, "1"))
		require.NoError(t, err)
		require.Equal(t, "upsert "+name, next(t, watch))
		s.grpc.Stop()
		meanwhile := album("meanwhile"+strconv.Itoa(i), "1")
		meanwhile.Id.Uid = "uid" + strconv.Itoa(i)
		_, err = s.store.WriteCAS(ctx, meanwhile)
		require.NoError(t, err)
		s.start()
		require.Equal(t, "upsert "+meanwhile.GetId().GetName(), next(t, watch))
	}
}

// A lost response leaves the outcome of a write unknown.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	var s *server
	var lose atomic.Pointer[func(ctx context.Context) error]
	s = newServer(t, grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		answer, err := next(ctx, req)
		if f := lose.Load(); f != nil && err == nil && strings.HasSuffix(info.FullMethod, "/Write") {
			return nil, (*f)(ctx)
		}
		return answer, err
	}))
	b, ctx := s.dial(t), timeoutContext(t)
	for name, loss := range map[string]func(ctx context.Context) error{
		"cut": func(ctx context.Context) error {
			go s.grpc.Stop()
			<-ctx.Done()
			return ctx.Err()
		},
		"reset":    func(context.Context) error { return status.Error(codes.Internal, "stream terminated by RST_STREAM") },
		"canceled": func(context.Context) error { return status.Error(codes.Canceled, "the proxy ends") },
		"unknown":  func(context.Context) error { return status.Error(codes.Unknown, "the proxy is lost") },
		"calm": func(context.Context) error {
			return status.Error(codes.ResourceExhausted, "stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM")
		},
	} {
		lose.Store(&loss)
		_, err := b.WriteCAS(ctx, album(name, "1"))
		require.ErrorIs(t, err, storage.ErrInconsistent, name)
		for _, definite := range []error{storage.ErrCASFailure, storage.ErrNotFound, storage.ErrInvalid, storage.ErrTooLarge} {
			require.False(t, errors.Is(err, definite), "%s: %v", name, err)
		}
		lose.Store(nil)
		if name == "cut" {
			s.grpc.Stop()
			s.start()
		}
		require.Eventually(t, func() bool {
			_, err := b.Read(ctx, storage.StrongConsistency, album(name, "").GetId())
			return err == nil // it was written
		}, waitTimeout, 10*time.Millisecond, name)
	}
}

// resetStream is a stream that a proxy resets at a message.
type resetStream struct {
	grpc.ServerStream
	next *atomic.Pointer[status.Status]
	sent *status.Status
}

func (r *resetStream) SendMsg(m any) error {
	if s := r.next.Swap(nil); s != nil {
		r.sent = s
		return s.Err()
	}
	return r.ServerStream.SendMsg(m)
}

// A watch continues after a proxy has reset its stream.
func TestWatchResumesAfterReset(t *testing.T) {
	t.Parallel()
	var reset atomic.Pointer[status.Status]
	s := newServer(t, grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		r := &resetStream{ServerStream: stream, next: &reset}
		err := next(srv, r)
		if r.sent != nil {
			return r.sent.Err()
		}
		return err
	}))
	b, ctx := s.dial(t), timeoutContext(t)
	w, err := b.WatchList(ctx, albums, shop, "")
	require.NoError(t, err)
	defer w.Close()
	for { // to the end of the snapshot
		ev, err := w.Next(ctx)
		require.NoError(t, err)
		if ev.GetEndOfSnapshot() != nil {
			break
		}
	}
	for name, code := range map[string]codes.Code{"calm": codes.ResourceExhausted, "broken": codes.Internal, "down": codes.Unavailable, "ended": codes.Canceled, "odd": codes.Unknown} {
		reset.Store(status.New(code, "stream terminated by RST_STREAM"))
		_, err := b.WriteCAS(ctx, album(name, "1"))
		require.NoError(t, err)
		ev, err := w.Next(ctx)
		require.NoError(t, err, name)
		require.Equal(t, name, ev.GetUpsert().GetResource().GetId().GetName())
	}
}

// Reads that find no server are repeated, and writes are not: a repeated write could be applied twice.
func TestReadsAreRepeated(t *testing.T) {
	t.Parallel()
	var failures, calls atomic.Int32
	s := newServer(t, grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if calls.Add(1); failures.Add(-1) >= 0 {
			return nil, status.Error(codes.Unavailable, "the server is shutting down")
		}
		return next(ctx, req)
	}))
	b, ctx := s.dial(t), timeoutContext(t)
	written, err := b.WriteCAS(ctx, album("a", "1"))
	require.NoError(t, err)
	for name, read := range map[string]func() error{
		"read":  func() error { _, err := b.Read(ctx, storage.StrongConsistency, written.GetId()); return err },
		"list":  func() error { _, err := b.List(ctx, storage.StrongConsistency, albums, shop, ""); return err },
		"page":  func() error { _, err := b.ListPage(ctx, albums, shop, "", storage.ListOptions{}); return err },
		"owned": func() error { _, err := b.OwnerReferences(ctx, written.GetId()); return err },
	} {
		failures.Store(2)
		require.NoError(t, read(), name)
	}
	failures.Store(1)
	calls.Store(0)
	_, err = b.WriteCAS(ctx, album("b", "1"))
	require.ErrorIs(t, err, storage.ErrInconsistent)
	require.EqualValues(t, 1, calls.Load())
}

// A call that the server has refused because there were too many is repeated after the time that the server names, also a write.
func TestLimitedCallsAreRepeated(t *testing.T) {
	t.Parallel()
	var failures atomic.Int32
	s := newServer(t, grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if failures.Add(-1) >= 0 {
			refused, err := status.New(codes.ResourceExhausted, "too many calls").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
			require.NoError(t, err)
			return nil, refused.Err()
		}
		return next(ctx, req)
	}))
	b := s.dial(t)
	failures.Store(3)
	_, err := b.WriteCAS(timeoutContext(t), album("a", "1"))
	require.NoError(t, err)
	failures.Store(1 << 30)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = b.WriteCAS(short, album("b", "1"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, storage.ErrTooLarge)
}

// The layers over a store work over a server: typed clients and caches. Tables need transactions, which a server has not.
func TestLayers(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.dial(t)
	ctx := timeoutContext(t)
	type order struct{ Total int }
	typ := typed.NewType("demo", "v1", "Order")
	orders := typed.NewJSON[order](b, typ)
	created, err := orders.Create(ctx, typed.Object[order]{ID: orders.ID(shop, "o1"), Data: order{Total: 3}})
	require.NoError(t, err)
	require.Equal(t, 3, created.Data.Total)
	cached, err := cache.New(ctx, b, &cache.Options{Types: []storage.UnversionedType{storage.UnversionedTypeFrom(typ)}})
	require.NoError(t, err)
	defer cached.Close()
	copied, err := typed.NewJSON[order](cached, typ).Get(ctx, storage.StrongConsistency, created.ID)
	require.NoError(t, err)
	require.Equal(t, created.Version, copied.Version)

	updated, err := orders.Update(ctx, created.ID, func(o *typed.Object[order]) error { o.Data.Total++; return nil })
	require.NoError(t, err)
	copied, err = typed.NewJSON[order](cached, typ).Get(ctx, storage.StrongConsistency, created.ID)
	require.NoError(t, err)
	require.Equal(t, updated.Version, copied.Version)
	for event, err := range orders.Follow(ctx, shop, "", typed.FollowOptions{}) {
		require.NoError(t, err)
		require.Equal(t, 4, event.New.Data.Total)
		break
	}
	_, err = tables.Open(ctx, b, tables.NewJSONTable[order](typ))
	require.ErrorContains(t, err, "not a storage.Transactor", "a server has no transactions")
}

// A token that cannot be sent, such as one with the line break of its file, is rejected at once and not shown.
func TestInvalidTokens(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"secret\n", "secret\r", "sec ret", "secr\u00e9t", "secret\x00", "\x7f"} {
		_, err := client.Dial(client.Options{Address: "127.0.0.1:1", Token: token})
		require.ErrorIs(t, err, storage.ErrInvalid, "%q", token)
		require.NotContains(t, err.Error(), "sec")
	}
}

// A delete without a version or without a uid changes nothing, as in a store: the service would delete whatever is stored.
func TestDeleteNeedsVersionAndUid(t *testing.T) {
	t.Parallel()
	b, ctx := newServer(t).dial(t), timeoutContext(t)
	stored, err := b.WriteCAS(ctx, album("a", "1"))
	require.NoError(t, err)
	require.ErrorIs(t, b.DeleteCAS(ctx, stored.GetId(), ""), storage.ErrCASFailure)
	require.NoError(t, b.DeleteCAS(ctx, album("a", "").GetId(), stored.GetVersion()))
	require.NoError(t, b.DeleteCAS(ctx, album("a", "").GetId(), ""))
	other := album("a", "").GetId()
	other.Uid = "another"
	require.NoError(t, b.DeleteCAS(ctx, other, ""))
	_, err = b.Read(ctx, storage.StrongConsistency, stored.GetId())
	require.NoError(t, err, "it was deleted")
	require.NoError(t, b.DeleteCAS(ctx, album("none", "").GetId(), ""))
	require.NoError(t, b.DeleteCAS(ctx, stored.GetId(), stored.GetVersion()))
	_, err = b.Read(ctx, storage.StrongConsistency, stored.GetId())
	require.ErrorIs(t, err, storage.ErrNotFound)
}

// Calls of the history that the server has refused because there were too many are repeated, too.
func TestLimitedHistoryIsRepeated(t *testing.T) {
	t.Parallel()
	var failures atomic.Int32
	refusal := func() error {
		if failures.Add(-1) < 0 {
			return nil
		}
		refused, err := status.New(codes.ResourceExhausted, "too many calls").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
		require.NoError(t, err)
		return refused.Err()
	}
	s := newServer(t, grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := refusal(); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}), grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if err := refusal(); err != nil {
			return err
		}
		return next(srv, stream)
	}))
	b, ctx := s.dial(t), timeoutContext(t)
	stored, err := b.WriteCAS(ctx, album("a", "1"))
	require.NoError(t, err)
	filter := &key.Filter{Group: albums.Group, Kind: albums.Kind, Partition: shop.GetPartition(), Namespace: shop.GetNamespace()}
	failures.Store(3)
	oldest, newest, err := b.Revisions(ctx, filter)
	require.NoError(t, err)
	failures.Store(3)
	records, more, err := b.RecordsAt(filter, newest, 10)(ctx)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, records, 1)
	failures.Store(3)
	changes := 0
	require.NoError(t, b.Changes(ctx, stored.GetId(), oldest, newest, func(*history.Change) error { changes++; return nil }))
	require.Equal(t, 1, changes)
}

// Watches are no Bookmarker, whatever the options: a bookmark that the server has requested earlier does not prove what a strong read of a cache
// needs.
func TestBookmarksProveLess(t *testing.T) {
	t.Parallel()
	b, ctx := newServer(t).dial(t), timeoutContext(t)
	b.Bookmarks = true
	w, err := b.WatchList(ctx, albums, shop, "")
	require.NoError(t, err)
	defer w.Close()
	_, proves := w.(storage.Bookmarker)
	require.False(t, proves)
	require.Equal(t, "end of snapshot", next(t, w))
	w.(client.BookmarkedWatch).ShowBookmark()
	ev, err := w.Next(ctx)
	require.NoError(t, err)
	require.NotNil(t, ev.GetBookmark())
}
