package migrate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// trail is what happened to resources: the versions that were written, and "" for each deletion.
type trail map[key.Key][]string

// witness watches a store that held nothing of interest when it began, and remembers what it sees.
type witness struct {
	group sync.WaitGroup
	wrong []string // what no watch may show
	moved chan struct{}

	mu   sync.Mutex
	seen trail
}

// observe begins to watch all of a store.
func observe(t testing.TB, b storage.Backend) *witness {
	t.Helper()
	ctx, stop := context.WithCancel(limited(t))
	watch, err := b.WatchList(ctx, everything, anyTenancy(), "")
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{seen: make(trail), moved: make(chan struct{}, 1)}
	w.group.Go(func() {
		defer watch.Close()
		for live := false; ; {
			ev, err := watch.Next(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				t.Errorf("a watch that was open during the migration: %v", err)
				return
			}
			switch {
			case ev.GetEndOfSnapshot() != nil:
				live = true
			case live:
				w.note(ev)
			}
		}
	})
	t.Cleanup(func() {
		stop()
		w.group.Wait()
	})
	return w
}

// note takes an event down. Whatever the events of a resource are, no version comes twice, and a deletion shows what was there.
func (w *witness) note(ev *resourcepb.WatchEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	res, version := ev.GetUpsert().GetResource(), ev.GetUpsert().GetResource().GetVersion()
	if res == nil {
		res = ev.GetDelete().GetResource()
	}
	k := key.Of(res.GetId())
	before := w.seen[k]
	switch {
	case version != "" && slices.Contains(before, version):
		w.wrong = append(w.wrong, fmt.Sprintf("%v: version %s came again", k, version))
	case version == "" && len(before) > 0 && before[len(before)-1] != res.GetVersion():
		w.wrong = append(w.wrong, fmt.Sprintf("%v: the deletion is of version %q, the last one was %q", k, res.GetVersion(), before[len(before)-1]))
	}
	w.seen[k] = append(before, version)
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// await waits until so much has been seen of a resource.
func (w *witness) await(t testing.TB, k key.Key, enough func(versions []string) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(limited(t), 3*time.Minute)
	defer cancel()
	for {
		w.mu.Lock()
		versions := slices.Clone(w.seen[k])
		w.mu.Unlock()
		if enough(versions) {
			return
		}
		select {
		case <-w.moved:
		case <-ctx.Done():
			t.Fatalf("the watch stopped short: of %v it has seen %q", k, versions)
		}
	}
}

// wantTrail demands that the watch has seen, resource by resource and in order, all that was acknowledged, and nothing else.
func (w *witness) wantTrail(t testing.TB, want trail) {
	t.Helper()
	for k, versions := range want {
		w.await(t, k, func(seen []string) bool { return len(seen) >= len(versions) })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, versions := range want {
		if !slices.Equal(w.seen[k], versions) {
			t.Errorf("%v: the watch has seen %d events, acknowledged were %d:\n%q\n%q", k, len(w.seen[k]), len(versions), w.seen[k], versions)
		}
	}
	w.wantNothingWrong(t)
}

// wantState demands that what the watch has seen ends in what a store holds, after a change that comes last.
func (w *witness) wantState(t testing.TB, b storage.Backend) {
	t.Helper()
	end := write(t, b, small("the-end", "1"))
	w.await(t, key.Of(end.Id), func(versions []string) bool { return slices.Contains(versions, end.Version) })
	all, err := b.List(limited(t), storage.StrongConsistency, everything, anyTenancy(), "")
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make(map[key.Key]string)
	for _, res := range all {
		k := key.Of(res.Id)
		held[k] = res.Version
		if len(w.seen[k]) == 0 {
			t.Errorf("%v: the watch has not seen it", k)
		}
	}
	for k, versions := range w.seen {
		if last := versions[len(versions)-1]; last != held[k] {
			t.Errorf("%v: the watch has seen %q, the store holds %q", k, versions, held[k])
		}
	}
	w.wantNothingWrong(t)
}

func (w *witness) wantNothingWrong(t testing.TB) {
	t.Helper()
	for _, text := range w.wrong {
		t.Error(text)
	}
}

// wantOnly demands that the watch has seen one change, and nothing else.
func (w *witness) wantOnly(t testing.TB, res *resourcepb.Resource) {
	t.Helper()
	k := key.Of(res.Id)
	w.await(t, k, func(versions []string) bool { return slices.Contains(versions, res.Version) })
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, versions := range w.seen {
		if other != k || len(versions) != 1 {
			t.Errorf("%v: the watch has seen %q", other, versions)
		}
	}
	w.wantNothingWrong(t)
}
