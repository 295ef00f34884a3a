package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// admits closes a store with a fence that admits writes under a note, and returns the epoch.
func admits(s *suite, m driver.GuardedMover, note string) (epoch string) {
	s.Helper()
	state := must[driver.FenceState](s)(m.Fence(s.ctx))
	fence := driver.Fence{Target: "mem://source", Admits: note}
	epoch = must[string](s)(m.SetFenceAt(s.ctx, &fence, state.Epoch))
	fence = driver.Fence{Target: "changed by the caller", Admits: "other"} // the driver must not keep the pointer
	return epoch
}

// fenceAdmits closes a store for all writers but one, as the target of a migration. Writes without the guard fail and change nothing.
func fenceAdmits(s *suite) {
	one, other := movables(s)
	ctx := s.ctx
	tool := extension[driver.GuardedMover](s, one.Backend)
	there := must[*resourcepb.Resource](s)(other.WriteCAS(ctx, thingNamed("there")))
	revision := must[string](s)(other.WriteNote(ctx, "mover", []byte("a"), ""))
	unrelated := must[string](s)(other.WriteNote(ctx, "other", []byte("a"), ""))
	guarded := guardContext(ctx, "mover", revision)
	must[*resourcepb.Resource](s)(one.WriteCAS(guarded, thingNamed("before")))
	epoch := admits(s, tool, "mover")

	refused := func(what string, ctx context.Context, wanted error) {
		s.Helper()
		before := versionsOf(s, other)
		for name, b := range map[string]movable{"the tool's handle": one, "the other handle": other} {
			for op, err := range refusals(ctx, b.Backend, there) {
				if !errors.Is(err, wanted) || errors.Is(err, storage.ErrFenced) && !strings.Contains(err.Error(), "mem://source") {
					s.Errorf("%s, %s, %s: got %v, expected %v", what, name, op, err, wanted)
				}
			}
		}
		if after := versionsOf(s, other); after != before {
			s.Errorf("%s: it changed the store", what)
		}
	}
	for name, b := range map[string]movable{"the tool's handle": one, "the other handle": other} {
		state, err := b.Fence(ctx)
		if wanted := (driver.Fence{Target: "mem://source", Admits: "mover"}); err != nil || !state.Closed || state.Fence != wanted || state.Epoch != epoch {
			s.Errorf("%s: the fence is %+v, %v, expected %+v", name, state, err, wanted)
		}
	}
	refused("without a guard", ctx, storage.ErrFenced)
	refused("under another note", guardContext(ctx, "other", unrelated), storage.ErrFenced)
	refused("under another revision", guardContext(ctx, "mover", "4711"), driver.ErrSuperseded)
	write := func(ctx context.Context) {
		s.Helper()
		for _, b := range []movable{one, other} {
			res := must[*resourcepb.Resource](s)(b.WriteCAS(ctx, thingNamed("written")))
			res.Generation = "2"
			res = must[*resourcepb.Resource](s)(b.WriteCAS(ctx, res))
			if _, err := b.WriteCAS(ctx, thingNamed("written")); !errors.Is(err, storage.ErrCASFailure) {
				s.Errorf("got %v, expected ErrCASFailure", err)
			}
			s.noError("DeleteCAS", b.DeleteCAS(ctx, res.Id, res.Version))
			if tr, ok := storage.As[storage.Transactor](b.Backend); ok {
				made := must[[]*resourcepb.Resource](s)(tr.Commit(ctx, []storage.Op{{Write: thingNamed("a")}, {Check: there.Id, Version: there.Version}}))
				must[[]*resourcepb.Resource](s)(tr.Commit(ctx, []storage.Op{{Delete: made[0].Id, Version: made[0].Version}}))
			}
		}
	}
	write(guarded)
	loadAdmitted(guarded, s, one.Backend)

	// A takeover, and a fence for everybody.
	revision = must[string](s)(other.WriteNote(ctx, "mover", []byte("b"), revision))
	refused("after a takeover", guarded, driver.ErrSuperseded)
	guarded = guardContext(ctx, "mover", revision)
	write(guarded)
	other.close(s, "mem://source")
	before := versionsOf(s, other)
	for op, err := range refusals(guarded, one.Backend, there) {
		if !errors.Is(err, storage.ErrFenced) && !errors.Is(err, driver.ErrSuperseded) {
			s.Errorf("after the store was closed for all, %s: got %v, expected ErrFenced or ErrSuperseded", op, err)
		}
	}
	_, revision, err := other.ReadNote(ctx, "mover")
	s.noError("ReadNote", err)
	refused("under a later revision, after the store was closed for all", guardContext(ctx, "mover", revision), storage.ErrFenced)
	if versionsOf(s, other) != before {
		s.Errorf("after the store was closed for all: it changed")
	}

	// The store opens.
	admits(s, tool, "mover")
	write(guardContext(ctx, "mover", revision))
	s.noError("SetFence", other.SetFence(ctx, nil))
	write(ctx)
}

// loadAdmitted loads with and without the admitted guard, if the backend has a loader.
func loadAdmitted(guarded context.Context, s *suite, b storage.Backend) {
	s.Helper()
	l, has := storage.As[driver.Bulk](b)
	if !has {
		return
	}
	if err := l.Load(s.ctx, rowsOf(s, loadResources(3)...)); !errors.Is(err, storage.ErrFenced) {
		s.Errorf("loading without a guard: got %v, expected ErrFenced", err)
	}
	s.noError("Load", l.Load(guarded, rowsOf(s, loadResources(3)...)))
}

// versionsOf returns the contents of a store as text.
func versionsOf(s *suite, b storage.Backend) (text string) {
	s.Helper()
	for _, res := range listAll(s, b) {
		text += fmt.Sprintf("%s %s\n", res.Id.Name, res.Version)
	}
	return text
}

// fenceAdmitsWithWriters closes a store for all writers but the tool while both write. When SetFenceAt has returned, only writes with the
// guard succeed, and all of these do.
func fenceAdmitsWithWriters(s *suite) {
	one, other := movables(s)
	ctx := s.ctx
	tool := extension[driver.GuardedMover](s, one.Backend)
	revision := must[string](s)(other.WriteNote(ctx, "mover", []byte("a"), ""))
	guarded := guardContext(ctx, "mover", revision)
	const writers = 6
	warm, stop := make(chan struct{}, writers), make(chan struct{})
	var group sync.WaitGroup
	errs := make([]error, writers)
	for i := range writers {
		b, isTool := []movable{one, other}[i/2%2], i%2 == 0
		group.Go(func() {
			for n := 1; errs[i] == nil; n++ {
				write := ctx
				if isTool {
					write = guarded
				}
				_, errs[i] = b.WriteCAS(write, thingNamed(fmt.Sprintf("%v-%d-%06d", isTool, i, n)))
				if n == 3 || n < 3 && errs[i] != nil {
					warm <- struct{}{}
				}
				select {
				case <-stop:
					if isTool {
						return
					}
				default:
				}
			}
		})
	}
	for range writers {
		<-warm
	}
	admits(s, tool, "mover")
	programs := func() (n int) {
		for _, res := range listAll(s, other) {
			if strings.HasPrefix(res.Id.Name, "false-") {
				n++
			}
		}
		return n
	}
	after := programs()
	must[*resourcepb.Resource](s)(one.WriteCAS(guarded, thingNamed("last")))
	close(stop)
	group.Wait()
	if later := programs(); later != after {
		s.Errorf("programs had written %d resources when the store was closed for them, and %d later", after, later)
	}
	for i, err := range errs {
		if isTool := i%2 == 0; isTool && err != nil || !isTool && !errors.Is(err, storage.ErrFenced) {
			s.Errorf("writer %d (the tool's: %v) ended with %v", i, isTool, err)
		}
	}
}
