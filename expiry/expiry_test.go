package expiry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/expiry"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// bubble is a store in memory in a synctest bubble. It counts the deletions that its watch returns.
type bubble struct {
	*testing.T
	storage.Backend
	deletions atomic.Int64
}

func inBubble(t *testing.T, test func(*bubble)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, Backend: inmem.New(nil)}
		w, err := b.WatchList(t.Context(), fixture.AllTypes, fixture.AllTenancies, "")
		if err != nil {
			t.Fatal(err)
		}
		var watching sync.WaitGroup
		watching.Go(func() {
			for {
				ev, err := w.Next(t.Context())
				if err != nil {
					return
				}
				if ev.GetDelete() != nil {
					b.deletions.Add(1)
				}
			}
		})
		test(b)
		w.Close()
		watching.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// start runs an Expirer over a backend until stop is called.
func (b *bubble) start(backend storage.Backend, o *expiry.Options) (e *expiry.Expirer, stop func()) {
	b.Helper()
	if o == nil {
		o = &expiry.Options{}
	}
	o.Logger = slog.New(slog.DiscardHandler)
	e = expiry.New(backend, o)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	synctest.Wait()
	return e, func() {
		b.Helper()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			b.Errorf("Run ended with %v", err)
		}
	}
}

// write writes a resource with a time to live, 0 for none, at its version.
func (b *bubble) write(res *resourcepb.Resource, ttl time.Duration) *resourcepb.Resource {
	b.Helper()
	if res.Ttl = nil; ttl != 0 {
		res.Ttl = durationpb.New(ttl)
	}
	return fixture.Write(b, b.Backend, res)
}

// expect checks after a time whether a resource is stored.
func (b *bubble) expect(after time.Duration, name string, stored bool) {
	b.Helper()
	time.Sleep(after)
	synctest.Wait()
	if got := fixture.Stored(b, b.Backend, fixture.ID(name)) != nil; got != stored {
		b.Errorf("stored after %v: %v, expected %v", after, got, stored)
	}
}

// tick is the resolution of the checks, and spread the maximum delay of a deletion after a time to live of 10 seconds.
const (
	tick   = time.Millisecond
	spread = time.Second
	ttl    = 10 * time.Second
)

// A resource lives for its time to live and is then deleted. The time does not depend on times in the resource.
func TestResourceLivesForTTL(t *testing.T) {
	inBubble(t, func(b *bubble) {
		before := fixture.Resource("before", "")
		before.Generation = ulid.MustNew(1, ulid.DefaultEntropy()).String() // of 1970
		before.Status = map[string]*resourcepb.Status{"s": {UpdatedAt: timestamppb.New(time.Unix(1, 0))}}
		b.write(before, ttl)
		b.write(fixture.Resource("none", ""), 0)
		b.write(fixture.Resource("long", ""), 100*ttl)
		b.write(fixture.Resource("longest", ""), 10*365*24*time.Hour)
		e, stop := b.start(b.Backend, nil)
		defer stop()
		after := fixture.Resource("after", "")
		after.Generation = ulid.MustNew(ulid.MaxTime(), ulid.DefaultEntropy()).String()
		b.write(after, ttl)
		b.write(fixture.Resource("short", ""), time.Nanosecond)
		b.expect(tick, "short", false)
		if s := e.Stats(); s.Pending != 4 || s.Overdue != 0 || s.Deleted != 1 {
			b.Errorf("before the end of the time to live: %+v", s)
		}
		for _, name := range []string{"before", "after"} {
			b.expect(0, name, true)
		}
		b.expect(ttl-2*tick, "before", true)
		b.expect(0, "after", true)
		b.expect(spread+tick, "before", false)
		b.expect(0, "after", false)
		b.expect(99*ttl, "long", false)
		b.expect(time.Hour, "none", true)
		b.expect(0, "longest", true)
		if s := e.Stats(); s != (expiry.Stats{Pending: 1, Deleted: 4}) {
			b.Errorf("after the end of the time to live: %+v", s)
		}
		if n := b.deletions.Load(); n != 4 {
			b.Errorf("%d deletions, expected 4", n)
		}
	})
}

// A write starts the time to live again with its own value. A write without one, and a deletion, end it.
func TestWriteStartsTTLAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		e, stop := b.start(b.Backend, nil)
		defer stop()
		renewed, shorter, cleared := b.write(fixture.Resource("renewed", ""), ttl), b.write(fixture.Resource("shorter", ""), time.Hour), b.write(fixture.Resource("cleared", ""), ttl)
		fixture.Remove(b, b.Backend, b.write(fixture.Resource("deleted", ""), ttl))
		for range 5 {
			b.expect(ttl-tick, "renewed", true)
			renewed = b.write(renewed, ttl)
			if cleared.GetTtl() != nil {
				cleared = b.write(cleared, 0)
				shorter = b.write(shorter, ttl)
				b.write(fixture.Resource("deleted", ""), 0)
			}
		}
		if s := e.Stats(); s.Pending != 1 || s.Deleted != 1 {
			b.Errorf("%+v, expected one renewed and one deleted resource", s)
		}
		b.expect(ttl+spread, "renewed", false)
		b.expect(0, "shorter", false)
		b.expect(time.Hour, "cleared", true)
		b.expect(0, "deleted", true)
	})
}

// Of two Expirers, one deletes on time when the other has ended. Each resource is deleted once.
func TestNextExpirerDeletesOnTime(t *testing.T) {
	inBubble(t, func(b *bubble) {
		first, stopFirst := b.start(b.Backend, nil)
		second, stop := b.start(b.Backend, nil)
		defer stop()
		for i := range 100 {
			b.write(fixture.Resource(fmt.Sprint(i), ""), ttl+time.Duration(i)*ttl/100)
		}
		b.expect(ttl+ttl/2, "99", true)
		stopFirst()
		b.expect(ttl/2+spread, "99", false)
		if n := b.deletions.Load(); n != 100 || second.Stats().Pending != 0 {
			b.Errorf("%d deletions, %+v, expected 100", n, second.Stats())
		}
		if first.Stats().Deleted == 0 || second.Stats().Deleted >= 100 {
			b.Errorf("one Expirer deleted nothing: %+v, %+v", first.Stats(), second.Stats())
		}
	})
}

// The time to live starts again if no Expirer has observed its beginning.
func TestRestartStartsTTLAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.write(fixture.Resource("a", ""), ttl)
		_, stop := b.start(b.Backend, nil)
		time.Sleep(ttl - tick)
		stop()
		b.expect(time.Hour, "a", true)
		_, stop = b.start(b.Backend, nil)
		defer stop()
		b.expect(ttl-tick, "a", true)
		b.expect(spread+tick, "a", false)
	})
}

// interruptible is a backend whose watches can be paused, and ended.
type interruptible struct {
	storage.Backend
	turn  chan struct{} // taken while watches are paused
	skips atomic.Bool
	endCh chan struct{} // a token ends a watch
}

type interruptibleWatch struct {
	storage.Watch
	b *interruptible
}

func (i *interruptible) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := i.Backend.WatchList(ctx, typ, tenancy, prefix)
	return interruptibleWatch{w, i}, err
}

func (w interruptibleWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.b.endCh:
			cancel()
		case <-ctx.Done():
		}
	}()
	ev, err := w.Watch.Next(ctx)
	w.b.turn <- struct{}{} // blocks while watches are paused
	<-w.b.turn
	if err != nil {
		err = fmt.Errorf("%w: %w", storage.ErrWatchClosed, err)
	}
	return ev, err
}

// SkipDamage records that the watch is to skip damaged resources.
func (w interruptibleWatch) SkipDamage(of func(storage.UnversionedType) bool) {
	w.b.skips.Store(of(fixture.Type))
}

// An Expirer whose watch is late deletes no resource that is renewed. It reads the stored version when the deletion of an older one was refused.
func TestLateWatchDeletesNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		late := &interruptible{Backend: b.Backend, turn: make(chan struct{}, 1)}
		res := b.write(fixture.Resource("a", ""), ttl)
		e, stop := b.start(late, nil)
		defer stop()
		late.turn <- struct{}{}
		for range 100 {
			b.expect(ttl-tick, "a", true)
			res = b.write(res, ttl)
		}
		b.expect(ttl-tick, "a", true)
		if s := e.Stats(); s.Deleted != 0 || s.Failures != 0 || s.Pending != 1 || s.Overdue > spread {
			b.Errorf("while the watch is late: %+v", s)
		}
		b.expect(ttl+2*(spread+tick), "a", false)
		<-late.turn
		synctest.Wait()
		if s := e.Stats(); s != (expiry.Stats{Deleted: 1}) {
			b.Errorf("after the watch has returned the deletion: %+v", s)
		}
	})
}

// A resource that is written between the decision and the deletion is not deleted.
func TestWriteBeforeDeletion(t *testing.T) {
	inBubble(t, func(b *bubble) {
		res := b.write(fixture.Resource("a", ""), ttl)
		var attempts atomic.Int64
		_, stop := b.start(b.Backend, &expiry.Options{Delete: func(ctx context.Context, id *resourcepb.ID, version string) error {
			if attempts.Add(1) == 1 {
				b.write(res, ttl)
			}
			return b.DeleteCAS(ctx, id, version)
		}})
		defer stop()
		b.expect(2*ttl-tick, "a", true)
		if n := attempts.Load(); n != 1 {
			b.Errorf("%d attempts, expected 1", n)
		}
		b.expect(2*spread+tick, "a", false)
	})
}

// After the end of a watch, the time of observed versions continues. Resources that were deleted meanwhile are forgotten.
func TestWatchIsReopened(t *testing.T) {
	inBubble(t, func(b *bubble) {
		ending := &interruptible{Backend: b.Backend, turn: make(chan struct{}, 1), endCh: make(chan struct{})}
		b.write(fixture.Resource("a", ""), ttl)
		deleted, cleared, renewed := b.write(fixture.Resource("deleted", ""), ttl), b.write(fixture.Resource("cleared", ""), ttl), b.write(fixture.Resource("renewed", ""), ttl)
		e, stop := b.start(ending, nil)
		defer stop()
		if !ending.skips.Load() {
			t.Error("a damaged resource would end the watch")
		}
		time.Sleep(ttl / 2)
		ending.endCh <- struct{}{}
		synctest.Wait()
		fixture.Remove(b, b.Backend, deleted)
		b.write(cleared, 0)
		b.write(renewed, ttl)
		time.Sleep(time.Second)
		if s := e.Stats(); s.Pending != 2 {
			b.Errorf("after the watch was reopened: %+v, expected two pending resources", s)
		}
		b.expect(ttl/2-time.Second-tick, "a", true)
		b.expect(spread+tick, "a", false)
		b.expect(0, "renewed", true)
		b.expect(ttl, "renewed", false)
		b.expect(0, "cleared", true)
	})
}

// A failed deletion is retried, counted and reported as overdue.
func TestFailedDeletionIsRetried(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var works atomic.Bool
		e, stop := b.start(b.Backend, &expiry.Options{Concurrency: 1, Delete: func(ctx context.Context, id *resourcepb.ID, version string) error {
			if id.GetName() == "refused" && !works.Load() {
				return storage.ErrInconsistent
			}
			return b.DeleteCAS(ctx, id, version)
		}})
		defer stop()
		b.write(fixture.Resource("refused", ""), ttl)
		b.write(fixture.Resource("other", ""), ttl+time.Minute)
		time.Sleep(ttl + time.Hour)
		s := e.Stats()
		if s.Failures < 60 || s.Failures > 70 || s.Overdue != time.Hour || s.Pending != 1 || s.Deleted != 1 {
			b.Errorf("after an hour of failures: %+v", s)
		}
		works.Store(true)
		b.expect(time.Minute, "refused", false)
		if s := e.Stats(); s.Overdue != 0 || s.Pending != 0 {
			b.Errorf("after the last deletion: %+v", s)
		}
	})
}

// Expirers of two handles of a file delete each resource once, and end when their stores are closed.
func TestDatabase(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "store.db")
	b := fixture.Open(t, url)
	ctx := fixture.Context(t)
	var running sync.WaitGroup
	var handles []storage.Backend
	for range 2 {
		handle, err := storage.Open(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := expiry.New(handle, &expiry.Options{Logger: slog.New(slog.DiscardHandler)}).Run(ctx); !errors.Is(err, storage.ErrClosed) {
				t.Errorf("Run over a closed store: %v", err)
			}
		})
		handles = append(handles, handle)
	}
	w := fixture.WatchAll(t, b)
	const n = 20
	began := time.Now()
	for i := range n {
		res := fixture.Resource(fmt.Sprint(i), "")
		res.Ttl = durationpb.New(100 * time.Millisecond)
		fixture.Write(t, b, res)
	}
	for deleted := 0; deleted < n; {
		ev, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.GetDelete() != nil {
			deleted++
		}
	}
	if lived := time.Since(began); lived < 100*time.Millisecond {
		t.Errorf("the last resource was deleted after %v", lived)
	}
	for _, handle := range handles {
		if err := handle.Close(); err != nil {
			t.Error(err)
		}
	}
	running.Wait()
}
