package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// trail is the history of resources: the written versions, and "" for each deletion.
type trail map[key.Key][]string

// witness watches a store that was empty when it began, and records the events.
type witness struct {
	group sync.WaitGroup
	wrong []string // errors in the events
	moved chan struct{}

	mu   sync.Mutex
	seen trail
}

// observe starts a watch of a whole store.
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
			if ctx.Err() != nil || errors.Is(err, storage.ErrMoved) {
				return // a watch of the source ends after the last change
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

// note records an event. For any resource, no version is repeated, and a deletion contains the last state.
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
		w.wrong = append(w.wrong, fmt.Sprintf("%v: version %s was repeated", k, version))
	case version == "" && len(before) > 0 && before[len(before)-1] != res.GetVersion():
		w.wrong = append(w.wrong, fmt.Sprintf("%v: the deletion has version %q, the last one was %q", k, res.GetVersion(), before[len(before)-1]))
	}
	w.seen[k] = append(before, version)
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// await waits until enough returns true for the events of a resource.
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
			t.Fatalf("the watch did not return the expected events of %v in time, only %q", k, versions)
		}
	}
}

// wantTrail checks that the watch has returned all acknowledged writes, resource by resource and in order, and nothing else.
func (w *witness) wantTrail(t testing.TB, want trail) {
	t.Helper()
	for k, versions := range want {
		w.await(t, k, func(seen []string) bool { return len(seen) >= len(versions) })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, versions := range want {
		if !slices.Equal(w.seen[k], versions) {
			t.Errorf("%v: the watch has returned %d events for %d acknowledged writes:\n%q\n%q", k, len(w.seen[k]), len(versions), w.seen[k], versions)
		}
	}
	w.wantNothingWrong(t)
}

// wantState checks that the events end in the contents of a store, after a last change.
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
			t.Errorf("%v: the watch has not returned it", k)
		}
	}
	for k, versions := range w.seen {
		if last := versions[len(versions)-1]; last != held[k] {
			t.Errorf("%v: the watch has returned %q, the store has %q", k, versions, held[k])
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

// wantOnly checks that the watch has returned exactly one change.
func (w *witness) wantOnly(t testing.TB, res *resourcepb.Resource) {
	t.Helper()
	k := key.Of(res.Id)
	w.await(t, k, func(versions []string) bool { return slices.Contains(versions, res.Version) })
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, versions := range w.seen {
		if other != k || len(versions) != 1 {
			t.Errorf("%v: the watch has returned %q", other, versions)
		}
	}
	w.wantNothingWrong(t)
}
