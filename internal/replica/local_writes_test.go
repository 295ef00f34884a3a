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

// delayed is a backend whose watches deliver the snapshot, and further events after a receive from release.
type delayed struct {
	storage.Backend
	release chan struct{}
}

func (d delayed) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := d.Backend.WatchList(ctx, typ, tenancy, prefix)
	return &delayedWatch{Watch: w, release: d.release}, err
}

type delayedWatch struct {
	storage.Watch
	release     chan struct{}
	hasSnapshot bool
}

func (w *delayedWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if w.hasSnapshot {
		select {
		case <-w.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ev, err := w.Watch.Next(ctx)
	w.hasSnapshot = w.hasSnapshot || ev.GetEndOfSnapshot() != nil
	return ev, err
}

// openDelayed returns a copy of a new store in memory whose watch delivers no events by itself.
func openDelayed(t *testing.T) (delayed, *Replica[string]) {
	t.Helper()
	b := delayed{fixture.Open(t, "mem://"), make(chan struct{})}
	r, err := Open(fixture.Context(t), b, Options[string]{Decode: func(res *resourcepb.Resource) string { return res.GetVersion() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return b, r
}

// A caller that waits for a local write keeps waiting when a second write has covered it, because a cut has neither.
func TestAwaitLocalWritesWaitsForCoveredWrite(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b, r := openDelayed(t)
	write := func(res *resourcepb.Resource) *resourcepb.Resource {
		w := r.Begin([]key.Key{key.Of(res.GetId())})
		stored := fixture.Write(t, b, res)
		if unsure := w.End([]*resourcepb.Resource{stored}, nil); len(unsure) > 0 {
			t.Errorf("the copy is unsure about %v", unsure)
		}
		return stored
	}
	first := write(fixture.Resource("a", "1"))
	confirmed := make(chan error, 1)
	go func() { confirmed <- r.AwaitLocalWrites(ctx, func(key.Key) bool { return true }) }()
	fixture.Eventually(t, "it waits", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.waiters.wake != nil
	})
	write(first)
	fixture.Eventually(t, "it waits again, or has returned", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.waiters.wake != nil || len(confirmed) > 0
	})
	if len(confirmed) > 0 && r.Cut().Get(key.Of(first.GetId())) == nil {
		t.Error("the wait ended although a cut lacks the write")
	}
	close(b.release)
	if err := <-confirmed; err != nil {
		t.Fatal(err)
	}
	if r.Cut().Get(key.Of(first.GetId())) == nil {
		t.Error("a cut lacks the write")
	}
}

// The watch's event of a local write is not a change for a View that includes the write. A caller that waits for a later change keeps waiting.
func TestAwaitChangeIgnoresLocalWrite(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b, r := openDelayed(t)
	k := key.Of(fixture.ID("a"))
	w := r.Begin([]key.Key{k})
	local := fixture.Write(t, b, fixture.Resource("a", "1"))
	w.End([]*resourcepb.Resource{local}, nil)
	r.View()
	b.release <- struct{}{}
	fixture.Eventually(t, "the watch has delivered the write", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.acknowledgedWrites) == 0
	})
	other := fixture.Write(t, b, local)
	changed := make(chan error, 1)
	go func() { changed <- r.AwaitChange(ctx, r.View(), k, local.GetVersion()) }()
	fixture.Eventually(t, "it waits, or has returned", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.waiters.wake != nil || len(changed) > 0
	})
	if len(changed) > 0 {
		t.Error("the wait ended before the other write")
	}
	close(b.release)
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	if row := r.Get(k); row.Version != other.GetVersion() {
		t.Errorf("the wait ended at version %s, expected %s", row.Version, other.GetVersion())
	}
}

// While the watch delivers nothing, repeated writes of a key use bounded memory, and a caller that waits for one of them waits for it.
func TestCoveredWritesAreBounded(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b, r := openDelayed(t)
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
	confirmed := make(chan error, 1)
	go func() { confirmed <- r.AwaitLocalWrites(ctx, func(key.Key) bool { return true }) }()
	fixture.Eventually(t, "it waits", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.waiters.wake != nil
	})
	for range all - before {
		write()
	}
	r.mu.Lock()
	if n := len(r.acknowledgedWrites[k].coveredWrites); n > 100 {
		t.Errorf("the copy retains %d writes of one key", n)
	}
	r.mu.Unlock()
	close(b.release)
	if err := <-confirmed; err != nil {
		t.Fatal(err)
	}
	if version := r.Cut().Get(k).Version; older[version] {
		t.Errorf("the wait ended at version %s, which is older than the awaited write", version)
	}
}
