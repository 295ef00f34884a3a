package replica

import (
	"context"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// quiet is a backend whose watches bring their snapshot and, once told, the rest.
type quiet struct {
	storage.Backend
	told chan struct{}
}

func (q quiet) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := q.Backend.WatchList(ctx, typ, tenancy, prefix)
	return &quietWatch{Watch: w, told: q.told}, err
}

type quietWatch struct {
	storage.Watch
	told chan struct{}
	past bool
}

func (w *quietWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if w.past {
		select {
		case <-w.told:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ev, err := w.Watch.Next(ctx)
	w.past = w.past || ev.GetEndOfSnapshot() != nil
	return ev, err
}

// openQuiet returns a copy of a new store in memory that is told of nothing by itself.
func openQuiet(t *testing.T) (quiet, *Replica[string]) {
	t.Helper()
	b := quiet{fixture.Open(t, "mem://"), make(chan struct{})}
	r, err := Open(fixture.Context(t), b, Options[string]{Decode: func(res *resourcepb.Resource) string { return res.GetVersion() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return b, r
}

// Who waits for an own write goes on waiting when a second one has covered it: a cut has neither.
func TestSettledWaitsForWhatIsCovered(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b, r := openQuiet(t)
	write := func(res *resourcepb.Resource) *resourcepb.Resource {
		w := r.Begin([]key.Key{key.Of(res.GetId())})
		stored := fixture.Write(t, b, res)
		if unsure := w.End([]*resourcepb.Resource{stored}, nil); len(unsure) > 0 {
			t.Errorf("the copy is not sure of %v", unsure)
		}
		return stored
	}
	first := write(fixture.Resource("a", "1"))
	settled := make(chan error, 1)
	go func() { settled <- r.AwaitLocalWrites(ctx, func(key.Key) bool { return true }) }()
	fixture.Eventually(t, "it waits", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.waiters.wake != nil
	})
	write(first)
	fixture.Eventually(t, "it waits again, or has ended", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.waiters.wake != nil || len(settled) > 0
	})
	if len(settled) > 0 && r.Cut().Get(key.Of(first.GetId())) == nil {
		t.Error("it has ended although a cut does not have the write")
	}
	close(b.told)
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	if r.Cut().Get(key.Of(first.GetId())) == nil {
		t.Error("a cut does not have the write")
	}
}

// What the watch brings of an own write is nothing new to a View that shows it, which stays what it is: who waits for what came after the
// write goes on waiting.
func TestPassedIsNotOverWithAnOwnWrite(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b, r := openQuiet(t)
	k := key.Of(fixture.ID("a"))
	w := r.Begin([]key.Key{k})
	own := fixture.Write(t, b, fixture.Resource("a", "1"))
	w.End([]*resourcepb.Resource{own}, nil)
	r.View()
	b.told <- struct{}{}
	fixture.Eventually(t, "the watch has brought the write", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.acknowledged) == 0
	})
	other := fixture.Write(t, b, own)
	passed := make(chan error, 1)
	go func() { passed <- r.AwaitChange(ctx, r.View(), k, own.GetVersion()) }()
	fixture.Eventually(t, "it waits, or has ended", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.waiters.wake != nil || len(passed) > 0
	})
	if len(passed) > 0 {
		t.Error("it has ended before the other write has come")
	}
	close(b.told)
	if err := <-passed; err != nil {
		t.Fatal(err)
	}
	if row := r.Get(k); row.Version != other.GetVersion() {
		t.Errorf("it has ended when the copy shows version %s, expected %s", row.Version, other.GetVersion())
	}
}

// While the watch brings nothing, a key that is written over and over takes no more memory with each write, and who waits for one of the
// writes waits for it.
func TestManyWritesOfAKeyAreFewToRemember(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b, r := openQuiet(t)
	k := key.Of(fixture.ID("a"))
	res := fixture.Resource("a", "")
	write := func() {
		w := r.Begin([]key.Key{k})
		res = fixture.Write(t, b, res)
		w.End([]*resourcepb.Resource{res}, nil)
	}
	const before, all = 500, 1000
	older := map[string]bool{}
	for range before {
		older[res.GetVersion()] = true
		write()
	}
	settled := make(chan error, 1)
	go func() { settled <- r.AwaitLocalWrites(ctx, func(key.Key) bool { return true }) }()
	fixture.Eventually(t, "it waits", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.waiters.wake != nil
	})
	for range all - before {
		write()
	}
	r.mu.Lock()
	if n := len(r.acknowledged[k].coveredWrites); n > 100 {
		t.Errorf("%d writes of one key are remembered", n)
	}
	r.mu.Unlock()
	close(b.told)
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	if version := r.Cut().Get(k).Version; older[version] {
		t.Errorf("it has ended when the copy shows version %s, which was overwritten before", version)
	}
}
