package dynamodb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// recordMove records in a closed store that it has moved.
func recordMove(t *testing.T, b storage.Backend) {
	t.Helper()
	m, _ := storage.As[driver.GuardedMover](b)
	state, err := m.Fence(t.Context())
	if err == nil {
		_, err = m.SetFenceAt(t.Context(), &driver.Fence{Target: "mem://there", Moved: true, Identity: "id", Cursor: "c"}, state.Epoch)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// strongReads makes every strong read of the boxes.
func strongReads(ctx context.Context, b *dynamodb.Backend) map[string]error {
	_, read := b.Read(ctx, storage.StrongConsistency, box("a", nil).GetId())
	_, absent := b.Read(ctx, storage.StrongConsistency, box("absent", nil).GetId())
	_, list := b.List(ctx, storage.StrongConsistency, boxType, tenancy, "")
	_, empty := b.List(ctx, storage.StrongConsistency, boxType, tenancy, "none")
	_, page := b.ListPage(ctx, boxType, tenancy, "", storage.ListOptions{Consistency: storage.StrongConsistency})
	if errors.Is(absent, storage.ErrNotFound) {
		absent = nil
	}
	return map[string]error{"a read": read, "a read of an absent box": absent, "a list": list, "an empty list": empty, "a page": page}
}

// A store that has moved names the other store to writers, strong readers and new watches, through both handles, until it is opened again. The
// other handle has read it before the move, and its permission is valid almost until the store is closed.
func TestMovedStore(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b, other := handle(t, s), handle(t, s)
	res := fixture.Write(t, other, box("a", nil))
	check := func(phase string) {
		t.Helper()
		for name, b := range map[string]*dynamodb.Backend{"the tool's handle": b, "the other handle": other} {
			for call, err := range strongReads(t.Context(), b) {
				if err != nil {
					t.Errorf("%s store: %s, %s: %v", phase, name, call, err)
				}
			}
		}
	}
	check("an open")
	closing := startFence(t, b, "mem://there")
	awaitAnnouncement(s)
	check("an announced")
	if err := advanceUntil(t, s, closing); err != nil {
		t.Fatal(err)
	}
	check("a closed")
	recordMove(t, b)
	for name, b := range map[string]*dynamodb.Backend{"the tool's handle": b, "the other handle": other} {
		tried := strongReads(t.Context(), b)
		_, tried["a write"] = b.WriteCAS(t.Context(), res)
		_, tried["a watch"] = b.WatchList(t.Context(), boxType, tenancy, "")
		tried["a delete"] = b.DeleteCAS(t.Context(), res.GetId(), res.GetVersion())
		for call, err := range tried {
			move := (*storage.MovedError)(nil)
			if !errors.As(err, &move) || *move != (storage.MovedError{Target: "mem://there", Identity: "id", Cursor: "c"}) {
				t.Errorf("%s, %s: %v, expected a MovedError", name, call, err)
			}
		}
		for call, err := range strongReads(driver.WithMovedReads(t.Context()), b) {
			if err != nil {
				t.Errorf("%s, %s of a tool: %v", name, call, err)
			}
		}
		if got, err := b.Read(t.Context(), storage.EventualConsistency, res.GetId()); err != nil || got.GetVersion() != res.GetVersion() {
			t.Errorf("%s, an eventual read: %v, %v", name, got, err)
		}
	}
	if err := gateOf(b).SetFence(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	check("an opened")
	fixture.Write(t, other, res)
}

// A process is frozen while it holds the answers to its reads of the fence and of the store's mark, and the store is moved meanwhile. When it
// continues, these answers must not permit a strong read that was answered later.
func TestLateRenewalBesideAStrongRead(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	var once sync.Once
	var freezing atomic.Bool
	frozen, thaw := make(chan struct{}), make(chan struct{})
	b := handleThrough(t, s, func(o *awsdynamodb.Options) {
		late := middleware.InitializeMiddlewareFunc("Late", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			out, metadata, err := next.HandleInitialize(ctx, in)
			if get, ok := in.Parameters.(*awsdynamodb.GetItemInput); ok && freezing.Load() {
				if pk, ok := get.Key["pk"].(*types.AttributeValueMemberB); ok && bytes.HasSuffix(pk.Value, []byte("\x00s")) {
					once.Do(func() {
						close(frozen)
						<-thaw
					})
				}
			}
			return out, metadata, err
		})
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error { return stack.Initialize.Add(late, middleware.Before) })
	})
	fixture.Write(t, b, box("a", nil))
	s.Advance(20 * time.Second)                                                                        // more than half of the permission
	if _, err := b.Read(t.Context(), storage.EventualConsistency, box("a", nil).GetId()); err != nil { // learns the time
		t.Fatal(err)
	}
	freezing.Store(true)
	if _, err := b.Read(t.Context(), storage.StrongConsistency, box("a", nil).GetId()); err != nil { // begins to renew the permission
		t.Fatal(err)
	}
	<-frozen
	tool := handle(t, s)
	closing := startFence(t, tool, "mem://there")
	awaitAnnouncement(s)
	if err := advanceUntil(t, s, closing); err != nil {
		t.Fatal(err)
	}
	recordMove(t, tool)
	answered := make(chan error, 1)
	before := s.Calls("GetItem")
	go func() {
		_, err := b.Read(t.Context(), storage.StrongConsistency, box("a", nil).GetId())
		answered <- err
	}()
	for s.Calls("GetItem") == before {
		<-time.After(time.Millisecond)
	}
	<-time.After(50 * time.Millisecond) // the read has its answer, and waits for the permission
	close(thaw)
	if err := <-answered; !errors.Is(err, storage.ErrMoved) {
		t.Errorf("a strong read of a store that has moved returned %v", err)
	}
}

// Strong reads of an open store need no further request while the handle's permission to write is valid.
func TestStrongReadsOfAnOpenStore(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	fixture.Write(t, b, box("a", nil))
	countRequests(t, func() []string {
		before := s.Calls("GetItem")
		const reads = 20
		for range reads {
			if _, err := b.Read(t.Context(), storage.StrongConsistency, box("a", nil).GetId()); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Calls("GetItem") - before; n != reads {
			return []string{fmt.Sprintf("%d reads made %d requests", reads, n)}
		}
		return nil
	})
}

// Watches of a store that has moved return its last change, and end with the error that names the other store. If a proof of that is
// impossible, because no tick reaches a part of a split type, the error has no cursor.
func TestWatchesOfAMovedStore(t *testing.T) {
	t.Parallel()
	for name, split := range map[string]bool{"Proven": false, "Unproven": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			short := func(o *dynamodb.Options) { o.FenceWait = 400 * time.Millisecond }
			b, other := handle(t, s, short, withBuckets(1)), handle(t, s, short)
			first := fixture.Write(t, b, box("box-03", nil))
			var watches []storage.Watch
			for _, b := range []*dynamodb.Backend{b, other} {
				w := opened(t, b)
				afterSnapshot(t, w)
				watches = append(watches, w)
			}
			cursor := watches[0].Cursor()
			want := "c"
			if split {
				splitBoxes(s)
				want = ""
			}
			last := fixture.Write(t, other, box("box-03x", nil))
			if err := gateOf(b).SetFence(t.Context(), new("mem://there")); err != nil {
				t.Fatal(err)
			}
			recordMove(t, b)
			for i, w := range append(watches, resumed(t, b, cursor)) {
				_, version, _ := seen(fixture.Next(t, w))
				if i == len(watches) && version == first.GetVersion() { // a cursor from shortly after a snapshot may repeat changes of the snapshot
					_, version, _ = seen(fixture.Next(t, w))
				}
				if version != last.GetVersion() {
					t.Errorf("watch %d: another event than the last write's", i)
				}
				_, err := w.Next(t.Context())
				move := (*storage.MovedError)(nil)
				if !errors.As(err, &move) || !errors.Is(err, storage.ErrWatchClosed) || move.Cursor != want {
					t.Errorf("watch %d ended with %v", i, err)
				}
			}
		})
	}
}
