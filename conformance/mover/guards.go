package mover

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// epochs changes the fence with epochs that are current and with such as are not, through two handles.
func epochs(t testing.TB, one driver.GuardedMover, _, b store) {
	ctx := limited(t)
	other, has := storage.As[driver.GuardedMover](b.Backend)
	if !has {
		t.Fatal("the other handle has no guarded mover")
	}
	x, y, z := "mem://x", "mem://y", "mem://z"
	seen := make(map[string]bool)
	state := func() driver.FenceState {
		t.Helper()
		s := must[driver.FenceState](t)(one.Fence(ctx))
		if s != must[driver.FenceState](t)(other.Fence(ctx)) {
			t.Errorf("the handles do not see the same fence")
		}
		return s
	}
	// fresh demands that the fence has an epoch that there never was.
	fresh := func(closed bool) string {
		t.Helper()
		s := state()
		if s.Epoch == "" || seen[s.Epoch] || s.Closed != closed {
			t.Errorf("got %+v, expected another epoch and closed %v", s, closed)
		}
		seen[s.Epoch] = true
		return s.Epoch
	}
	// refused demands that a change of the fence at that epoch is refused, and changes nothing.
	refused := func(what string, m driver.GuardedMover, target *string, epoch string) {
		t.Helper()
		before := state()
		if _, err := m.SetFenceAt(ctx, target, epoch); !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("%s: got %v, expected ErrCASFailure", what, err)
		}
		if state() != before {
			t.Errorf("%s: it changed the fence", what)
		}
	}
	first := state()
	if first.Closed {
		t.Fatal("a new store is closed")
	}
	refused("an epoch that never was", one, &x, "4711")
	next := must[string](t)(one.SetFenceAt(ctx, &x, first.Epoch))
	x = "changed by the caller" // who may, since what is given is not kept
	if e := fresh(true); e != next || state().Target != "mem://x" {
		t.Errorf("closing returned epoch %q, the fence is %+v", next, state())
	}
	refused("closing at the epoch before", other, &y, first.Epoch)
	refused("opening at the epoch before", other, nil, first.Epoch)
	if _, err := b.WriteCAS(ctx, resource("new")); !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), "mem://x") {
		t.Errorf("got %v, expected ErrFenced with the target", err)
	}
	open := must[string](t)(other.SetFenceAt(ctx, nil, next))
	if e := fresh(false); e != open {
		t.Errorf("opening returned epoch %q, the fence has %q", open, e)
	}
	must[*resourcepb.Resource](t)(b.WriteCAS(ctx, resource("new")))
	// Opening what is open and closing what is closed count, or somebody who was frozen could not tell.
	open = must[string](t)(other.SetFenceAt(ctx, nil, open))
	if e := fresh(false); e != open {
		t.Errorf("opening an open store returned epoch %q, the fence has %q", open, e)
	}
	for _, change := range []struct {
		do     func() error
		closed bool
	}{
		{func() error { return one.SetFence(ctx, nil) }, false},
		{func() error { return other.SetFence(ctx, &z) }, true},
		{func() error { return one.SetFence(ctx, &z) }, true},
		{func() error { return other.SetFence(ctx, nil) }, false},
	} {
		before := state().Epoch
		ok(t, change.do())
		fresh(change.closed)
		refused("closing at an epoch from before", one, &x, before)
		refused("opening at an epoch from before", one, nil, before)
	}
}

func guarded(ctx context.Context, note, revision string) context.Context {
	return driver.WithGuard(ctx, driver.Guard{Note: note, Revision: revision})
}

// guards writes under guards that hold and under such as do not.
func guards(t testing.TB, _ driver.GuardedMover, one, other store) {
	ctx := limited(t)
	there := must[*resourcepb.Resource](t)(other.WriteCAS(ctx, resource("there")))
	revision := must[string](t)(other.WriteNote(ctx, "mover", []byte("a"), ""))
	under := func(revision string) context.Context { return guarded(ctx, "mover", revision) }
	writes := func(ctx context.Context) map[string]error { return refusals(ctx, one.Backend, there) }
	allRefused := func(what string, ctx context.Context) {
		t.Helper()
		for op, err := range writes(ctx) {
			if !errors.Is(err, driver.ErrSuperseded) {
				t.Errorf("%s, %s: got %v, expected ErrSuperseded", what, op, err)
			}
		}
		list := contents(t, other)
		if len(list) != 1 || list[0].Version != there.Version {
			t.Errorf("%s: it changed the store", what)
		}
	}
	allRefused("a note that has another revision", under("4711"))
	allRefused("a note that is there", under(""))
	allRefused("a note that is not there", guarded(ctx, "nobody", revision))

	// One that holds hinders nothing.
	res := must[*resourcepb.Resource](t)(one.WriteCAS(under(revision), resource("guarded")))
	res.Generation = "2"
	res = must[*resourcepb.Resource](t)(one.WriteCAS(under(revision), res))
	if _, err := one.WriteCAS(under(revision), resource("guarded")); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("got %v, expected ErrCASFailure", err)
	}
	ok(t, one.DeleteCAS(under(revision), res.Id, res.Version))
	ok(t, one.DeleteCAS(under(revision), res.Id, res.Version))
	if tr, is := storage.As[storage.Transactor](one.Backend); is {
		made := must[[]*resourcepb.Resource](t)(tr.Commit(under(revision), []storage.Op{{Write: resource("a")}, {Check: there.Id, Version: there.Version}}))
		must[[]*resourcepb.Resource](t)(tr.Commit(under(revision), []storage.Op{{Delete: made[0].Id, Version: made[0].Version}}))
	}

	next := must[string](t)(other.WriteNote(ctx, "mover", []byte("a"), revision))
	allRefused("a note that was written since", under(revision))
	mixed(under(revision), under(next), t, one)
	ok(t, other.DeleteNote(ctx, "mover", next))
	allRefused("a note that was deleted since", under(next))
}

// mixed writes under guards that hold, under such as do not, and without one, all at the same time: stores put such writes
// together.
func mixed(stale, holds context.Context, t testing.TB, b store) {
	t.Helper()
	type result struct {
		kind int
		res  *resourcepb.Resource
		err  error
	}
	const n = 90
	results := make(chan result, n)
	for i := range n {
		go func() {
			ctx := []context.Context{stale, holds, limited(t)}[i%3]
			res, err := b.WriteCAS(ctx, resource("mixed-"+string(rune('A'+i))))
			results <- result{i % 3, res, err}
		}()
	}
	for range n {
		switch r := <-results; {
		case r.kind == 0 && !errors.Is(r.err, driver.ErrSuperseded):
			t.Errorf("under a guard that does not hold: got %v, expected ErrSuperseded", r.err)
		case r.kind != 0 && r.err != nil:
			t.Errorf("beside it: %v", r.err)
		case r.err == nil:
			ok(t, b.DeleteCAS(limited(t), r.res.Id, r.res.Version))
		}
	}
}

// guardedLoads loads under a guard that holds and under one that does not, where the backend has a loader.
func guardedLoads(t testing.TB, _ driver.GuardedMover, one, other store) {
	l, has := storage.As[driver.Loader](one.Backend)
	if !has {
		return
	}
	ctx := limited(t)
	revision := must[string](t)(other.WriteNote(ctx, "mover", []byte("a"), ""))
	ok(t, l.Load(guarded(ctx, "mover", revision), rowsOf(t, herd(10)...)))
	must[string](t)(other.WriteNote(ctx, "mover", []byte("b"), revision))
	if err := l.Load(guarded(ctx, "mover", revision), rowsOf(t, resource("zzz"))); !errors.Is(err, driver.ErrSuperseded) {
		t.Errorf("got %v, expected ErrSuperseded", err)
	}
	if list := contents(t, other); len(list) != 10 {
		t.Errorf("the store holds %d resources, expected 10", len(list))
	}
}
