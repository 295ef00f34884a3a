package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The same seed injects the same faults at the same times. Clients make the same calls as long as they get the same answers.
func TestSeed(t *testing.T) {
	const n, created = 5, 3 // what is compared: what a run injects and creates at first
	plan := func(seed uint64) (p plan) {
		for lasts := 700 * time.Millisecond; len(p.faults) < n || len(p.uids) < created; lasts *= 2 {
			if lasts > fixture.Timeout {
				t.Fatalf("a run has injected %d faults and created %d resources", len(p.faults), len(p.uids))
			}
			p = planOf(t, seed, lasts)
		}
		return p
	}
	one, again, other := plan(1), plan(1), plan(2)
	if !slices.Equal(one.faults[:n], again.faults[:n]) {
		t.Errorf("the faults of two runs with the same seed differ:\n%q\n%q", one.faults[:n], again.faults[:n])
	}
	if slices.Equal(one.faults[:n], other.faults[:n]) {
		t.Errorf("the faults of two runs with different seeds are the same: %q", one.faults[:n])
	}
	if common(one.uids, again.uids) < created {
		t.Errorf("two runs with the same seed do not create the same:\n%q\n%q", one.uids, again.uids)
	}
	if common(one.uids, other.uids) > 0 {
		t.Errorf("two runs with different seeds create the same:\n%q\n%q", one.uids, other.uids)
	}
}

func common(a, b []string) (n int) {
	for _, uid := range a {
		if slices.Contains(b, uid) {
			n++
		}
	}
	return n
}

// plan is the faults that a run has had, in order, and the uids that its one client has made up.
type plan struct{ faults, uids []string }

func planOf(t *testing.T, seed uint64, lasts time.Duration) (p plan) {
	t.Helper()
	h := memoryHarness()
	for i, kind := range []Kind{Cut, Delay, Pause, Restart} {
		delete(h.Exempt, kind)
		h.Faults = append(h.Faults, Fault{Kind: kind, Weight: i, Hold: 30 * time.Millisecond, Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
			p.faults = append(p.faults, fmt.Sprint(kind, random.IntN(10)))
			return func(context.Context) error { return nil }, nil
		}})
	}
	open := h.Open
	h.Open = func(ctx context.Context) (storage.Backend, error) {
		b, err := open(ctx)
		return &listening{b.(*inmem.Backend), &p.uids}, err
	}
	o := Options{For: lasts, Calm: 50 * time.Millisecond, AtOnce: 1, Workers: 1, Handles: 1, Seed: seed, NoLeakCheck: true}
	report, err := Run(t.Context(), h, o)
	if err != nil || len(report.Violations) > 0 {
		t.Fatal(err, report)
	}
	return p
}

// listening records the uids of its writes.
type listening struct {
	*inmem.Backend
	uids *[]string
}

func (l *listening) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	*l.uids = append(*l.uids, res.Id.Uid)
	return l.Backend.WriteCAS(ctx, res)
}
