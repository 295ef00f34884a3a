package typed_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// faulty is a backend whose watches can be ended, and whose new watches can fail.
type faulty struct {
	storage.Backend
	mu    sync.Mutex
	err   error // of new watches; nil for none
	watch storage.Watch
	opens []string // the cursor of each new watch, "list" for a snapshot
}

func (f *faulty) As(target any) bool {
	switch target := target.(type) {
	case *storage.Resumer:
		*target = f
	case *history.Historian:
		historian, ok := storage.As[history.Historian](f.Backend)
		*target = historian
		return ok
	default:
		return false
	}
	return true
}

func (f *faulty) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	return f.open("list", func() (storage.Watch, error) { return f.Backend.WatchList(ctx, typ, tenancy, prefix) })
}

func (f *faulty) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix, cursor string) (storage.Watch, error) {
	resumer, _ := storage.As[storage.Resumer](f.Backend)
	return f.open(cursor, func() (storage.Watch, error) { return resumer.WatchFrom(ctx, typ, tenancy, prefix, cursor) })
}

func (f *faulty) open(from string, open func() (storage.Watch, error)) (w storage.Watch, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opens = append(f.opens, from); f.err != nil {
		return nil, f.err
	}
	w, err = open()
	f.watch = w
	return w, err
}

// endWatch ends the open watch. New ones fail with err, which may be nil.
func (f *faulty) endWatch(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.watch.Close()
}

// lists returns the number of snapshots.
func (f *faulty) lists() (count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, from := range f.opens {
		if from == "list" {
			count++
		}
	}
	return count
}

// compact discards the history.
func (f *faulty) compact(ctx context.Context, t *testing.T) {
	t.Helper()
	historian, ok := storage.As[history.Historian](f.Backend)
	if !ok {
		t.Fatal("the backend keeps no history")
	}
	_, newest, err := historian.Revisions(ctx)
	if err == nil {
		err = historian.Compact(ctx, newest)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// counters writes counters by name.
type counters struct {
	*testing.T
	ctx    context.Context
	client *typed.Client[*wrapperspb.Int64Value]
}

func (c counters) create(name string, value int64) {
	c.Helper()
	if _, err := c.client.Create(c.ctx, counter{ID: c.client.ID(shop, name), Data: wrapperspb.Int64(value)}); err != nil {
		c.Fatal(err)
	}
}

func (c counters) set(name string, value int64) {
	c.Helper()
	if _, err := c.client.Update(c.ctx, c.client.ID(shop, name), func(o *counter) error { o.Data.Value = value; return nil }); err != nil {
		c.Fatal(err)
	}
}

func (c counters) delete(name string) {
	c.Helper()
	if err := c.client.Delete(c.ctx, c.client.ID(shop, name), typed.Preconditions{}); err != nil {
		c.Fatal(err)
	}
}

type counterEvent = typed.Event[*wrapperspb.Int64Value]

// following reads a sequence of events.
type following struct {
	*testing.T
	next   func() (counterEvent, error, bool)
	cursor string // of the last event
}

func follow(t *testing.T, events iter.Seq2[counterEvent, error]) *following {
	next, stop := iter.Pull2(events)
	t.Cleanup(stop)
	return &following{T: t, next: next}
}

// expect reads events and compares their texts, such as "put a 1 was 0", "deleted a 1" and "synced".
func (f *following) expect(want ...string) {
	f.Helper()
	for i, want := range want {
		ev, err, ok := f.next()
		if err != nil || !ok {
			f.Fatalf("event %d: %v, ended: %v, expected %q", i+1, err, !ok, want)
		}
		f.cursor = ev.Cursor
		if got := eventText(ev); got != want {
			f.Fatalf("event %d is %q, expected %q", i+1, got, want)
		}
	}
}

// expectEnd reads the last error of the sequence.
func (f *following) expectEnd(want error) {
	f.Helper()
	if ev, err, ok := f.next(); !errors.Is(err, want) || !ok {
		f.Errorf("the sequence returned %v, %v, expected %v", ev, err, want)
	}
	if ev, err, ok := f.next(); ok {
		f.Errorf("after its end the sequence returned %v, %v", ev, err)
	}
}

func eventText(ev counterEvent) string {
	switch {
	case ev.Kind == typed.Put && ev.Old != nil:
		return fmt.Sprintf("put %s %d was %d", ev.New.ID.GetName(), ev.New.Data.Value, ev.Old.Data.Value)
	case ev.Kind == typed.Put:
		return fmt.Sprintf("put %s %d", ev.New.ID.GetName(), ev.New.Data.Value)
	case ev.Kind == typed.Deleted:
		return fmt.Sprintf("deleted %s %d", ev.Old.ID.GetName(), ev.Old.Data.GetValue())
	case ev.Kind == typed.Synced:
		return "synced"
	}
	return "progress"
}

// onEachFaulty runs a test on each embedded backend, with faults.
func onEachFaulty(t *testing.T, test func(c counters, b *faulty)) {
	onEach(t, func(ctx context.Context, t *testing.T, inner storage.Backend) {
		b := &faulty{Backend: inner}
		test(counters{t, ctx, typed.New[*wrapperspb.Int64Value](b, counterType)}, b)
	})
}

// A follower returns the stored resources, then every change with the earlier state. It continues at a cursor, in another run.
func TestFollow(t *testing.T) {
	onEachFaulty(t, func(c counters, b *faulty) {
		c.create("a", 1)
		c.create("b", 2)
		c.create("other", 3)
		f := follow(c.T, c.client.Follow(c.ctx, shop, "", typed.FollowOptions{}))
		f.expect("put a 1")
		if f.cursor != "" {
			c.Errorf("the cursor inside the snapshot is %q, expected none", f.cursor)
		}
		f.expect("put b 2", "put other 3", "synced")
		synced := f.cursor
		c.set("a", 2)
		c.delete("b")
		c.create("b", 5)
		f.expect("put a 2 was 1")
		after := f.cursor
		f.expect("deleted b 2", "put b 5")
		for cursor, want := range map[string][]string{
			synced: {"put a 2", "deleted b 2", "put b 5"},
			after:  {"deleted b 2", "put b 5"},
		} {
			follow(c.T, c.client.Follow(c.ctx, shop, "", typed.FollowOptions{Cursor: cursor})).expect(want...)
		}
		follow(c.T, c.client.Follow(c.ctx, shop, "a", typed.FollowOptions{})).expect("put a 2", "synced")
		if lists := b.lists(); lists != 2 {
			c.Errorf("%d lists, expected one for each follower without a cursor", lists)
		}
	})
}

// A watch that ends is resumed: no change is missing or repeated, and nothing is listed.
func TestFollowEndedWatch(t *testing.T) {
	onEachFaulty(t, func(c counters, b *faulty) {
		c.create("a", 1)
		f := follow(c.T, c.client.Follow(c.ctx, shop, "", typed.FollowOptions{}))
		f.expect("put a 1", "synced")
		for i := range int64(3) {
			c.set("a", 10*i+2)
			f.expect(fmt.Sprintf("put a %d was %d", 10*i+2, max(1, 10*i-6)))
			c.set("a", 10*i+3)
			b.endWatch(nil)
			c.set("a", 10*i+4)
			f.expect(fmt.Sprintf("put a %d was %d", 10*i+3, 10*i+2), fmt.Sprintf("put a %d was %d", 10*i+4, 10*i+3))
		}
		if lists := b.lists(); lists != 1 {
			c.Errorf("%d lists, expected 1", lists)
		}
	})
}

// The history is compacted while a follower lags. It returns the differences, with a deletion for each resource that is gone.
func TestFollowCompaction(t *testing.T) {
	onEachFaulty(t, func(c counters, b *faulty) {
		for _, name := range []string{"changed", "deleted", "recreated", "same", "updated-then-deleted"} {
			c.create(name, 1)
		}
		var reports []error
		f := follow(c.T, c.client.Follow(c.ctx, shop, "", typed.FollowOptions{Report: func(err error) { reports = append(reports, err) }}))
		f.expect("put changed 1", "put deleted 1", "put recreated 1", "put same 1", "put updated-then-deleted 1", "synced")
		c.set("changed", 2)
		c.set("changed", 3)
		c.delete("deleted")
		c.delete("recreated")
		c.create("recreated", 4)
		c.set("updated-then-deleted", 5)
		c.delete("updated-then-deleted")
		c.create("created", 6)
		b.endWatch(nil)
		b.compact(c.ctx, c.T)
		f.expect("put changed 3 was 1", "put created 6", "deleted recreated 1", "put recreated 4", "deleted deleted 1", "deleted updated-then-deleted 1", "synced")
		c.set("same", 2)
		f.expect("put same 2 was 1")
		if len(reports) < 2 || !errors.Is(reports[0], storage.ErrWatchClosed) || reports[len(reports)-1] != nil {
			c.Errorf("the reports are %v, expected ErrWatchClosed and then nil", reports)
		}
	})
}

// A program continues at a cursor that is compacted, damaged, of another store or absent. With its known resources it gets the differences; without
// them, the reason.
func TestFollowUnusableCursor(t *testing.T) {
	onEachFaulty(t, func(c counters, b *faulty) {
		c.create("deleted", 1)
		c.create("recreated", 1)
		c.create("same", 1)
		var known []*resourcepb.ID
		first := follow(c.T, c.client.Follow(c.ctx, shop, "", typed.FollowOptions{}))
		for range 3 {
			ev, err, _ := first.next()
			if err != nil {
				c.Fatal(err)
			}
			known = append(known, ev.New.ID)
		}
		first.expect("synced")
		c.delete("deleted")
		c.delete("recreated")
		c.create("recreated", 2)
		b.compact(c.ctx, c.T)
		for name, one := range map[string]struct {
			cursor string
			want   error
		}{
			"compacted": {first.cursor, storage.ErrCompacted},
			"damaged":   {"garbage", storage.ErrInvalid},
			"absent":    {"", nil},
		} {
			calls := 0
			opts := typed.FollowOptions{Cursor: one.cursor, Known: func(context.Context) ([]*resourcepb.ID, error) { calls++; return known, nil }}
			f := follow(c.T, c.client.Follow(c.ctx, shop, "", opts))
			f.expect("deleted recreated 0", "put recreated 2", "put same 1", "deleted deleted 0", "synced")
			if f.cursor == "" || calls != 1 {
				c.Errorf("%s: the cursor is %q, and Known was called %d times", name, f.cursor, calls)
			}
			stop := errors.New("stop")
			opts.Known = func(context.Context) ([]*resourcepb.ID, error) { return nil, stop }
			follow(c.T, c.client.Follow(c.ctx, shop, "", opts)).expectEnd(stop)
			if opts.Known = nil; one.want != nil {
				follow(c.T, c.client.Follow(c.ctx, shop, "", opts)).expectEnd(one.want)
			}
		}
	})
}

// Known is called only if the follower lists. Then the resources that the follower has returned before are not returned again.
func TestFollowKnownAfterResume(t *testing.T) {
	onEachFaulty(t, func(c counters, b *faulty) {
		c.create("a", 1)
		c.create("b", 1)
		first := follow(c.T, c.client.Follow(c.ctx, shop, "", typed.FollowOptions{}))
		first.expect("put a 1", "put b 1", "synced")
		calls := 0
		f := follow(c.T, c.client.Follow(c.ctx, shop, "", typed.FollowOptions{Cursor: first.cursor, Known: func(context.Context) ([]*resourcepb.ID, error) {
			calls++
			return []*resourcepb.ID{c.client.ID(shop, "a"), c.client.ID(shop, "b")}, nil
		}}))
		c.set("a", 2)
		f.expect("put a 2")
		if calls != 0 {
			c.Error("Known was called for a cursor that can be resumed")
		}
		c.delete("b")
		b.endWatch(nil)
		b.compact(c.ctx, c.T)
		f.expect("deleted b 0", "synced")
		if calls != 1 {
			c.Errorf("Known was called %d times, expected once", calls)
		}
	})
}

// The database is unavailable, or a resource in it is damaged, for a while. The follower reports the reason, and then continues.
func TestFollowOutage(t *testing.T) {
	onEachFaulty(t, func(c counters, b *faulty) {
		c.create("a", 1)
		for _, outage := range []error{storage.ErrInconsistent, &storage.DamagedError{ID: c.client.ID(shop, "x"), Err: errors.New("garbage")}} {
			var reports []error
			f := follow(c.T, c.client.Follow(c.ctx, shop, "", typed.FollowOptions{Report: func(err error) {
				if reports = append(reports, err); len(reports) == 4 {
					b.mu.Lock()
					b.err = nil
					b.mu.Unlock()
				}
			}}))
			value := fixture.Stored(c.T, b, c.client.ID(shop, "a")).GetData()
			f.expect("put a "+strings.TrimPrefix(fmt.Sprint(number(c.T, value)), " "), "synced")
			b.endWatch(outage)
			c.set("a", number(c.T, value)+1)
			f.expect(fmt.Sprintf("put a %d was %d", number(c.T, value)+1, number(c.T, value)))
			if len(reports) != 5 || !errors.Is(reports[0], storage.ErrWatchClosed) || reports[1] != outage || reports[4] != nil {
				c.Errorf("the reports are %v, expected ErrWatchClosed, three of %v, and nil", reports, outage)
			}
		}
	})
}

func number(t *testing.T, data *anypb.Any) int64 {
	t.Helper()
	var n wrapperspb.Int64Value
	if err := data.UnmarshalTo(&n); err != nil {
		t.Fatal(err)
	}
	return n.Value
}

// The sequence ends with its context, its backend and its loop, and with an invalid filter. Its watch is closed then.
func TestFollowEnds(t *testing.T) {
	onEachFaulty(t, func(c counters, b *faulty) {
		c.create("a", 1)
		follow(c.T, c.client.Follow(c.ctx, &resourcepb.Tenancy{Partition: "\xff"}, "", typed.FollowOptions{})).expectEnd(storage.ErrInvalid)
		isClosed := func() {
			c.Helper()
			if _, err := b.watch.Next(c.ctx); !errors.Is(err, storage.ErrWatchClosed) {
				c.Errorf("the watch of an ended sequence returned %v, expected ErrWatchClosed", err)
			}
		}
		for n := range 3 {
			for range c.client.Follow(c.ctx, shop, "", typed.FollowOptions{}) {
				if n--; n < 0 { // ends the loop in the snapshot, at Synced, and before the first change
					break
				}
				if n == 0 {
					c.set("a", int64(n)+time.Now().UnixNano())
				}
			}
			isClosed()
		}
		ctx, cancel := context.WithCancel(c.ctx)
		f := follow(c.T, c.client.Follow(ctx, shop, "", typed.FollowOptions{}))
		ev, err, _ := f.next()
		if err != nil || ev.Kind != typed.Put {
			c.Fatal(ev, err)
		}
		f.expect("synced")
		cancel()
		f.expectEnd(context.Canceled)
		isClosed()
		f = follow(c.T, c.client.Follow(c.ctx, shop, "z", typed.FollowOptions{}))
		f.expect("synced")
		if err := b.Close(); err != nil {
			c.Fatal(err)
		}
		f.expectEnd(storage.ErrClosed)
	})
}

// A resource that cannot be decoded is an error, and the sequence continues.
func TestFollowPayloadError(t *testing.T) {
	onEachFaulty(t, func(c counters, b *faulty) {
		other, _ := anypb.New(durationpb.New(time.Second))
		id := c.client.ID(shop, "a")
		id.Uid = "1"
		res := fixture.Write(c.T, b, &resourcepb.Resource{Id: id, Data: other})
		f := follow(c.T, c.client.Follow(c.ctx, shop, "", typed.FollowOptions{}))
		isPayloadError := func() {
			c.Helper()
			if _, err, _ := f.next(); !errors.As(err, new(*typed.PayloadError)) {
				c.Errorf("the sequence returned %v, expected a PayloadError", err)
			}
		}
		isPayloadError()
		f.expect("synced")
		res.Data, _ = anypb.New(wrapperspb.Int64(1))
		res = fixture.Write(c.T, b, res)
		f.expect("put a 1")
		res.Data = other
		fixture.Write(c.T, b, res)
		isPayloadError()
		c.create("b", 2)
		f.expect("put b 2")
	})
}

// On a quiet filter the cursor advances, and the follower returns it, so that it does not age in the program.
func TestFollowProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &faulty{Backend: inmem.New(nil)}
		defer b.Close()
		c := counters{t, t.Context(), typed.New[*wrapperspb.Int64Value](b, counterType)}
		f := follow(t, c.client.Follow(t.Context(), shop, "a", typed.FollowOptions{Progress: time.Minute}))
		f.expect("synced")
		synced := f.cursor
		for i := range int64(100) {
			c.create(fmt.Sprint("b", i), i)
		}
		f.expect("progress")
		progress := f.cursor
		c.create("a", 1)
		f.expect("put a 1")
		if cursors := []string{synced, progress, f.cursor}; slices.Contains(cursors, "") || len(slices.Compact(cursors)) != 3 {
			t.Errorf("the cursors are %q, expected three", cursors)
		}
		follow(t, c.client.Follow(t.Context(), shop, "a", typed.FollowOptions{Cursor: progress})).expect("put a 1")
	})
}

// A selector selects resources by metadata. A resource that it no longer selects is deleted for the follower, also if that happened before a list.
func TestFollowSelector(t *testing.T) {
	onEachFaulty(t, func(c counters, b *faulty) {
		label := func(name, tier string) {
			c.Helper()
			if _, err := c.client.Update(c.ctx, c.client.ID(shop, name), func(o *counter) error {
				o.Metadata = map[string]string{"tier": tier, "other": "x"}
				if tier == "back" {
					o.Data.Value += 100
				}
				return nil
			}); err != nil {
				c.Fatal(err)
			}
		}
		for i, name := range []string{"a", "b", "c"} {
			c.create(name, int64(i))
		}
		label("a", "front")
		label("b", "back")
		f := follow(c.T, c.client.Follow(c.ctx, shop, "", typed.FollowOptions{Selector: typed.Selector{"tier": "front"}}))
		f.expect("put a 0", "synced")
		label("b", "front")
		label("c", "back")
		c.delete("c")
		c.set("b", 5)
		label("a", "back")
		f.expect("put b 101", "put b 5 was 101", "deleted a 0")
		label("a", "front")
		f.expect("put a 100")
		label("a", "")
		label("b", "back")
		b.endWatch(nil)
		b.compact(c.ctx, c.T)
		f.expect("deleted a 100", "deleted b 5", "synced")
		var names []string
		for o, err := range c.client.List(c.ctx, storage.StrongConsistency, shop, "", typed.Selector{"tier": "back"}, typed.Selector{"other": "x"}) {
			if err != nil {
				c.Fatal(err)
			}
			names = append(names, o.ID.Name)
		}
		if !slices.Equal(names, []string{"b"}) {
			c.Errorf("the list has %q, expected b", names)
		}
	})
}

// A follower that continues at a cursor does not know which resources the program has: it returns the unselected ones as deleted.
func TestFollowSelectorAfterResume(t *testing.T) {
	onEachFaulty(t, func(c counters, b *faulty) {
		opts := typed.FollowOptions{Selector: typed.Selector{"tier": "front"}}
		id := c.client.ID(shop, "a")
		if _, err := c.client.Create(c.ctx, counter{ID: id, Data: wrapperspb.Int64(1), Metadata: map[string]string{"tier": "front"}}); err != nil {
			c.Fatal(err)
		}
		f := follow(c.T, c.client.Follow(c.ctx, shop, "", opts))
		f.expect("put a 1", "synced")
		opts.Cursor = f.cursor
		if _, err := c.client.Update(c.ctx, id, func(o *counter) error { o.Metadata = nil; return nil }); err != nil {
			c.Fatal(err)
		}
		follow(c.T, c.client.Follow(c.ctx, shop, "", opts)).expect("deleted a 1")
	})
}
