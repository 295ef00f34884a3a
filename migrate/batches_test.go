package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// loader records the sizes of batches, and refuses them with an error.
type loader struct {
	driver.Bulk
	mu     sync.Mutex
	sizes  []int
	refuse error
}

func (l *loader) Load(_ context.Context, rows []driver.Row) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sizes = append(l.sizes, len(rows))
	return l.refuse
}

// transactor records the sizes of transactions.
type transactor struct {
	storage.Transactor
	sizes []int
}

func (x *transactor) Commit(_ context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	x.sizes = append(x.sizes, len(ops))
	return nil, nil
}

// entries returns n entries of one size.
func entries(t testing.TB, n int) []*entry {
	t.Helper()
	all := make([]*entry, n)
	for i := range all {
		e, err := entryOf(small(fmt.Sprintf("n-%04d", i), "1"))
		if err != nil {
			t.Fatal(err)
		}
		all[i] = &e
	}
	return all
}

// A batch that the target refuses is tried in smaller groups, and then one by one. One that it accepts is not written again.
func TestRefusedBatch(t *testing.T) {
	t.Parallel()
	const n = maxBatch + 44
	for _, c := range []struct {
		refuse error
		n      int
		sizes  []int
		single int // resources that were written one by one
	}{
		{nil, n, []int{n}, 0},
		{storage.ErrCASFailure, n, []int{n, maxBatch, 44}, n},
		{storage.ErrCASFailure, maxBatch, []int{maxBatch}, maxBatch},
		{storage.ErrCASFailure, 1, nil, 1},
	} {
		to := fixture.Open(t, "mem://")
		m := newMigration(nil, to, nil)
		l := &loader{refuse: c.refuse}
		m.loader = l
		if err := m.createAll(limited(t), entries(t, c.n), nil); err != nil {
			t.Fatal(err)
		}
		if got := len(contents(t, to)); got != c.single || !slices.Equal(l.sizes, c.sizes) || m.stats.counts().Creations != int64(c.n) {
			t.Errorf("%d resources with %v: batches %v, %d single writes, %+v", c.n, c.refuse, l.sizes, got, m.stats.counts())
		}
		if c.n < n {
			continue
		}
		x := &transactor{}
		m.loader, m.transactor = nil, x
		if err := m.createAll(limited(t), entries(t, 3), nil); err != nil || !slices.Equal(x.sizes, []int{3}) {
			t.Errorf("transactions of %v, %v", x.sizes, err)
		}
	}
	m := newMigration(nil, fixture.Open(t, "mem://"), nil)
	m.loader = &loader{refuse: storage.ErrInconsistent}
	m.try.timeout = 0
	if err := m.createAll(limited(t), entries(t, 2), nil); !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("got %v from a target that does not answer", err)
	}
}

// A batch ends before a resource that would make it too long or too large. It may have exactly the maximum size.
func TestBatchLimits(t *testing.T) {
	t.Parallel()
	all := entries(t, 7)
	size := len(all[0].Data)
	for _, c := range []struct {
		batch, bytes int
		pending      []int
	}{
		{3, 100 * size, []int{1, 2, 3, 1, 2, 3, 1}},
		{100, 2 * size, []int{1, 2, 1, 2, 1, 2, 1}},
		{100, 3*size - 1, []int{1, 2, 1, 2, 1, 2, 1}},
		{100, 1, []int{1, 1, 1, 1, 1, 1, 1}},
	} {
		m := newMigration(nil, fixture.Open(t, "mem://"), nil)
		m.batch, m.batchBytes = c.batch, c.bytes
		group, ctx := errgroup.WithContext(limited(t))
		w := &writers{m: m, group: group, ctx: ctx, loads: make(chan struct{}, maxLoads)}
		var pending []int
		for _, e := range all {
			if err := w.create(e); err != nil {
				t.Fatal(err)
			}
			pending = append(pending, len(w.batch))
		}
		if err := errors.Join(w.flush(), group.Wait()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(pending, c.pending) || m.stats.creations.Load() != int64(len(all)) {
			t.Errorf("at most %d resources and %d bytes: batches grow as %v, expected %v; %d created", c.batch, c.bytes, pending, c.pending, m.stats.creations.Load())
		}
	}
}

// Changes are limited to a rate, however many a batch has, and the wait ends with its context.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMigration(nil, nil, &Options{Rate: 100})
		began := time.Now()
		if err := m.pace(t.Context(), 25); err != nil || time.Since(began).Round(time.Millisecond) != 150*time.Millisecond {
			t.Errorf("25 changes after a burst of 10 took %v at 100 per second, %v", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.pace(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v after the end of the context", err)
		}
	})
}

// The defaults depend on the target; a rate limits pages and batches.
func TestDefaults(t *testing.T) {
	t.Parallel()
	bare := struct{ storage.Backend }{fixture.Open(t, "mem://")}
	for _, c := range []struct {
		o                  Options
		from, to           string
		page, batch, burst int
	}{
		{Options{}, "the source", defaultTarget, 500, 1, 0},
		{Options{From: "a", To: "b", Batch: 7, PageSize: 3}, "a", "b", 3, 1, 0},
		{Options{Rate: 2}, "the source", defaultTarget, 60, 1, 1},
		{Options{Rate: 100}, "the source", defaultTarget, 500, 1, 10},
	} {
		m := newMigration(nil, bare, &c.o)
		burst := 0
		if m.limiter != nil {
			burst = m.limiter.Burst()
		}
		if m.o.From != c.from || m.o.To != c.to || m.o.PageSize != c.page || m.batch != c.batch || m.batchBytes != maxBatchBytes || burst != c.burst {
			t.Errorf("%+v: from %q to %q, pages of %d, batches of %d with %d bytes, bursts of %d", c.o, m.o.From, m.o.To, m.o.PageSize, m.batch, m.batchBytes, burst)
		}
	}
}

// A resource of the target that another program changes before each write of the tool is an error after a limited number of attempts.
func TestRaces(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"write", "delete"} {
		to, tap := fixture.Open(t, "mem://"), newTap()
		have := write(t, to, small("a", "1"))
		attempts := 0
		tap.at = func(int, bool, string) error {
			if attempts++; attempts > 2*maxRaces {
				return errDead
			}
			return storage.ErrCASFailure
		}
		m := newMigration(nil, &tapped{Backend: to, tap: tap, role: "to"}, nil)
		var err error
		if what == "write" {
			_, err = m.put(limited(t), small("a", "2"), have, nil, false)
		} else {
			_, err = m.drop(limited(t), have.Id, nil, func(string) bool { return true })
		}
		if !errors.Is(err, storage.ErrCASFailure) || attempts != maxRaces+1 {
			t.Errorf("%s: %d attempts, %v", what, attempts, err)
		}
	}
}

// failingStream fails after its first entry.
type failingStream struct {
	first *entry
	err   error
}

func (s *failingStream) next(context.Context) (*entry, error) {
	e := s.first
	if s.first = nil; e != nil {
		return e, nil
	}
	return nil, s.err
}

// A pass fails if a listing fails, although its writes succeed. It counts the resources that it renews.
func TestPass(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	m := newMigration(from, to, nil)
	broken := errors.New("the listing is broken")
	if _, err := m.pass(limited(t), &failingStream{entries(t, 1)[0], broken}, m.conflictDuringCopy, nil); !errors.Is(err, broken) {
		t.Errorf("got %v, expected %v", err, broken)
	}
	m = newMigration(from, fixture.Open(t, "mem://"), nil)
	for _, name := range []string{"a", "b", "c"} {
		res := small(name, "1")
		if name != "b" {
			res.Ttl = durationpb.New(time.Hour)
		}
		write(t, from, res)
		write(t, m.to, res)
	}
	l, err := m.listSource(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	renewed := 0
	if _, err := m.pass(limited(t), l, m.conflictDuringCopy, &renewed); err != nil || renewed != 2 {
		t.Errorf("%d of 2 resources with a time to live renewed, %v", renewed, err)
	}
}

// The error of a merge names the first ten conflicts.
func TestConflictsAreNamed(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	for i := range 12 {
		write(t, from, small(fmt.Sprintf("c-%02d", i), "1"))
		write(t, to, small(fmt.Sprintf("c-%02d", i), "2"))
	}
	_, err := Run(limited(t), from, to, quick(Options{Into: Merge}))
	if !errors.Is(err, ErrConflict) || strings.Count(fmt.Sprint(err), "c-") != 10 || !strings.Contains(fmt.Sprint(err), "c-09") {
		t.Errorf("got %v", err)
	}
}
