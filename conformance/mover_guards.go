package conformance

import (
	"context"
	"errors"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// guardEpochs changes the fence with current and with outdated epochs, through two handles.
func guardEpochs(s *suite) {
	one := extension[driver.GuardedMover](s, s.b)
	_, b := movables(s)
	ctx := s.ctx
	other, has := storage.As[driver.GuardedMover](b.Backend)
	if !has {
		s.Fatal("the other handle has no guarded mover")
	}
	x, y, z := driver.Fence{Target: "mem://x"}, driver.Fence{Target: "mem://y"}, "mem://z"
	seen := make(map[string]bool)
	state := func() driver.FenceState {
		s.Helper()
		fence := must[driver.FenceState](s)(one.Fence(ctx))
		if fence != must[driver.FenceState](s)(other.Fence(ctx)) {
			s.Errorf("the handles do not see the same fence")
		}
		return fence
	}
	// fresh demands that the fence has an epoch that it never had before.
	fresh := func(closed bool) string {
		s.Helper()
		fence := state()
		if fence.Epoch == "" || seen[fence.Epoch] || fence.Closed != closed {
			s.Errorf("got %+v, expected another epoch and closed %v", fence, closed)
		}
		seen[fence.Epoch] = true
		return fence.Epoch
	}
	// refused demands that a change of the fence at that epoch is refused, and changes nothing.
	refused := func(what string, m driver.GuardedMover, fence *driver.Fence, epoch string) {
		s.Helper()
		before := state()
		if _, err := m.SetFenceAt(ctx, fence, epoch); !errors.Is(err, storage.ErrCASFailure) {
			s.Errorf("%s: got %v, expected ErrCASFailure", what, err)
		}
		if state() != before {
			s.Errorf("%s: it changed the fence", what)
		}
	}
	first := state()
	if first.Closed {
		s.Fatal("a new store is closed")
	}
	refused("an epoch that never was", one, &x, "4711")
	next := must[string](s)(one.SetFenceAt(ctx, &x, first.Epoch))
	x.Target = "changed by the caller" // the driver must not keep the pointer
	if e := fresh(true); e != next || state().Target != "mem://x" {
		s.Errorf("closing returned epoch %q, the fence is %+v", next, state())
	}
	refused("closing at the epoch before", other, &y, first.Epoch)
	refused("opening at the epoch before", other, nil, first.Epoch)
	if _, err := b.WriteCAS(ctx, thingNamed("new")); !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), "mem://x") {
		s.Errorf("got %v, expected ErrFenced with the target", err)
	}
	open := must[string](s)(other.SetFenceAt(ctx, nil, next))
	if e := fresh(false); e != open {
		s.Errorf("opening returned epoch %q, the fence has %q", open, e)
	}
	must[*resourcepb.Resource](s)(b.WriteCAS(ctx, thingNamed("new")))
	// Opening an open store and closing a closed one change the epoch as well, so that a process that was frozen notices.
	open = must[string](s)(other.SetFenceAt(ctx, nil, open))
	if e := fresh(false); e != open {
		s.Errorf("opening an open store returned epoch %q, the fence has %q", open, e)
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
		s.noError("changing the fence", change.do())
		fresh(change.closed)
		refused("closing at an epoch from before", one, &x, before)
		refused("opening at an epoch from before", one, nil, before)
	}
}

func guardContext(ctx context.Context, note, revision string) context.Context {
	return driver.WithGuard(ctx, driver.Guard{Note: note, Revision: revision})
}

// guardWrites writes under valid and under outdated guards.
func guardWrites(s *suite) {
	one, other := movables(s)
	ctx := s.ctx
	there := must[*resourcepb.Resource](s)(other.WriteCAS(ctx, thingNamed("there")))
	revision := must[string](s)(other.WriteNote(ctx, "mover", []byte("a"), ""))
	under := func(revision string) context.Context { return guardContext(ctx, "mover", revision) }
	writes := func(ctx context.Context) map[string]error { return refusals(ctx, one.Backend, there) }
	allRefused := func(what string, ctx context.Context) {
		s.Helper()
		for op, err := range writes(ctx) {
			if !errors.Is(err, driver.ErrSuperseded) {
				s.Errorf("%s, %s: got %v, expected ErrSuperseded", what, op, err)
			}
		}
		list := listAll(s, other)
		if len(list) != 1 || list[0].Version != there.Version {
			s.Errorf("%s: it changed the store", what)
		}
	}
	allRefused("a note that has another revision", under("4711"))
	allRefused("a note that is there", under(""))
	allRefused("a note that is not there", guardContext(ctx, "nobody", revision))

	// A valid guard does not hinder a write.
	res := must[*resourcepb.Resource](s)(one.WriteCAS(under(revision), thingNamed("guarded")))
	res.Generation = "2"
	res = must[*resourcepb.Resource](s)(one.WriteCAS(under(revision), res))
	if _, err := one.WriteCAS(under(revision), thingNamed("guarded")); !errors.Is(err, storage.ErrCASFailure) {
		s.Errorf("got %v, expected ErrCASFailure", err)
	}
	s.noError("DeleteCAS", one.DeleteCAS(under(revision), res.Id, res.Version))
	s.noError("DeleteCAS", one.DeleteCAS(under(revision), res.Id, res.Version))
	if tr, ok := storage.As[storage.Transactor](one.Backend); ok {
		made := must[[]*resourcepb.Resource](s)(tr.Commit(under(revision), []storage.Op{{Write: thingNamed("a")}, {Check: there.Id, Version: there.Version}}))
		must[[]*resourcepb.Resource](s)(tr.Commit(under(revision), []storage.Op{{Delete: made[0].Id, Version: made[0].Version}}))
	}

	next := must[string](s)(other.WriteNote(ctx, "mover", []byte("a"), revision))
	allRefused("a note that was written since", under(revision))
	writeWithGuards(under(revision), under(next), s, one)
	s.noError("DeleteNote", other.DeleteNote(ctx, "mover", next))
	allRefused("a note that was deleted since", under(next))
}

// writeWithGuards writes concurrently under valid guards, under outdated ones and without a guard, because stores combine such
// writes.
func writeWithGuards(stale, holds context.Context, s *suite, b movable) {
	s.Helper()
	type result struct {
		kind int
		res  *resourcepb.Resource
		err  error
	}
	const n = 90
	results := make(chan result, n)
	for i := range n {
		go func() {
			ctx := []context.Context{stale, holds, s.ctx}[i%3]
			res, err := b.WriteCAS(ctx, thingNamed("mixed-"+string(rune('A'+i))))
			results <- result{i % 3, res, err}
		}()
	}
	for range n {
		switch r := <-results; {
		case r.kind == 0 && !errors.Is(r.err, driver.ErrSuperseded):
			s.Errorf("under a guard that does not hold: got %v, expected ErrSuperseded", r.err)
		case r.kind != 0 && r.err != nil:
			s.Errorf("beside it: %v", r.err)
		case r.err == nil:
			s.noError("DeleteCAS", b.DeleteCAS(s.ctx, r.res.Id, r.res.Version))
		}
	}
}

// guardWithWriters writes a note while many writes under its guard are in flight. A tool that was cut off cannot restore resources that were
// deleted after a takeover.
func guardWithWriters(s *suite) {
	one, other := movables(s)
	revision := must[string](s)(other.WriteNote(s.ctx, "mover", []byte("a"), ""))
	cutOff(guardContext(s.ctx, "mover", revision), s, []movable{one}, func() {
		must[string](s)(other.WriteNote(s.ctx, "mover", []byte("b"), revision))
	}, driver.ErrSuperseded)
}

// guardLoads loads under a valid and under an outdated guard, if the backend has a loader.
func guardLoads(s *suite) {
	one, other := movables(s)
	l, has := storage.As[driver.Bulk](one.Backend)
	if !has {
		return
	}
	ctx := s.ctx
	revision := must[string](s)(other.WriteNote(ctx, "mover", []byte("a"), ""))
	s.noError("Load", l.Load(guardContext(ctx, "mover", revision), rowsOf(s, loadResources(10)...)))
	must[string](s)(other.WriteNote(ctx, "mover", []byte("b"), revision))
	if err := l.Load(guardContext(ctx, "mover", revision), rowsOf(s, thingNamed("zzz"))); !errors.Is(err, driver.ErrSuperseded) {
		s.Errorf("got %v, expected ErrSuperseded", err)
	}
	if list := listAll(s, other); len(list) != 10 {
		s.Errorf("the store holds %d resources, expected 10", len(list))
	}
}
