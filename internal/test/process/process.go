// Package process tests the history of a store from several processes: a continue token and a revision of one process are valid
// in the others, whatever is written in between.
package process

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The writer writes this many resources in each round, all with the number of the round. In every second round it deletes some
// of them instead; the next round creates them again.
const (
	resources = 30
	limit     = 7 // of a page
	listings  = 5
)

// Run reads listings of a new, empty store in pages, each page in another process, while one of these processes writes. The
// TestMain of the package must begin with faults.ServeProcess.
func Run(t *testing.T, storeURL string) {
	t.Parallel()
	processes := faults.NewProcesses(storeURL)
	another := func() storage.Backend {
		b, err := processes.Open(fixture.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		return b
	}
	here, there := fixture.Open(t, storeURL), another()
	w := startWriter(t, there)
	t.Run("tokens", func(t *testing.T) {
		for i := range listings {
			l := listing{writer: w}
			// The last process is opened when the listing has begun.
			l.page(t, []storage.Backend{there, here}[i%2])
			handles := []storage.Backend{here, there, another()}
			for page := i; l.token != ""; page++ {
				w.goOn(t)
				l.page(t, handles[page%len(handles)])
			}
			l.check(t, 0)
		}
	})
	t.Run("revisions", func(t *testing.T) {
		h, ok := storage.As[history.Historian](here)
		if !ok {
			t.Fatal("the backend is no history.Historian")
		}
		for range listings {
			w.goOn(t)
			scan, err := h.Scan(fixture.Context(t), history.Range{}, history.ScanOptions{})
			if err != nil || len(scan.Records) == 0 {
				t.Fatalf("scan: %d records, %v", len(scan.Records), err)
			}
			l := listing{writer: w, revision: scan.Revision}
			for page := 0; page == 0 || l.token != ""; page++ {
				w.goOn(t)
				l.page(t, []storage.Backend{there, here}[page%2])
			}
			l.check(t, roundOf(t, scan.Records[0].Resource))
			again, err := h.Scan(fixture.Context(t), history.Range{}, history.ScanOptions{Revision: scan.Revision})
			if err != nil || len(again.Records) != len(l.resources) {
				t.Fatalf("scan at revision %d: %d records, %v; its listing in other processes has %d", scan.Revision, len(again.Records), err, len(l.resources))
			}
			for i, r := range again.Records {
				if r.Resource.Id.Name != l.resources[i].Id.Name || r.Resource.Version != l.resources[i].Version {
					t.Errorf("scan at revision %d: %v, its listing in other processes has %v", scan.Revision, r.Resource, l.resources[i])
				}
			}
		}
	})
}

// writer writes in another process.
type writer struct {
	rounds  atomic.Int64 // that are acknowledged
	failure atomic.Pointer[error]
}

func startWriter(t *testing.T, b storage.Backend) *writer {
	t.Helper()
	tx, ok := storage.As[storage.Transactor](b)
	if !ok {
		t.Fatal("the backend is no storage.Transactor")
	}
	w := &writer{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		stored := make([]*resourcepb.Resource, resources)
		for round := 1; ; round++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := w.write(context.WithoutCancel(t.Context()), tx, round, stored); err != nil {
				w.failure.Store(&err)
				return
			}
			w.rounds.Store(int64(round))
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	w.goOn(t)
	return w
}

func (w *writer) write(ctx context.Context, tx storage.Transactor, round int, stored []*resourcepb.Resource) error {
	ops := make([]storage.Op, resources)
	for i, old := range stored {
		if round%2 == 0 && i%3 == 0 {
			ops[i] = storage.Op{Delete: old.Id, Version: old.Version}
			continue
		}
		ops[i].Write = fixture.Resource(fmt.Sprintf("%02d", i), fmt.Sprint(round))
		ops[i].Write.Version = old.GetVersion()
	}
	written, err := tx.Commit(ctx, ops)
	copy(stored, written)
	return err
}

// goOn waits for the next acknowledgement of the writer.
func (w *writer) goOn(t *testing.T) {
	t.Helper()
	before := w.rounds.Load()
	fixture.Eventually(t, "the other process writes", func() bool { return w.rounds.Load() > before || w.failure.Load() != nil })
	if err := w.failure.Load(); err != nil {
		t.Fatalf("the other process writes: %v", *err)
	}
}

// listing is one that is read in pages.
type listing struct {
	writer     *writer
	revision   int64
	firstRound int64 // last round acknowledged before the listing began
	lastRound  int64 // last round acknowledged when its first page was read
	token      string
	resources  []*resourcepb.Resource
}

// page reads the next page.
func (l *listing) page(t *testing.T, b storage.Backend) {
	t.Helper()
	pager, ok := storage.As[storage.Pager](b)
	if !ok {
		t.Fatal("the backend is no storage.Pager")
	}
	first := len(l.resources) == 0
	if first {
		l.firstRound = l.writer.rounds.Load()
	}
	p, err := pager.ListPage(fixture.Context(t), fixture.Type, fixture.Tenancy, "", storage.ListOptions{
		Consistency: storage.StrongConsistency, Limit: limit, Continue: l.token, Revision: l.revision,
	})
	if err != nil {
		t.Fatalf("after %d resources: %v", len(l.resources), err)
	}
	if l.resources, l.token = append(l.resources, p.Resources...), p.Continue; first {
		l.lastRound = l.writer.rounds.Load() + 1 // one more may have been carried out
	}
}

// check compares the listing with the resources of a round: the given one or, if it is 0, a round that was the last when the
// listing began.
func (l *listing) check(t *testing.T, round int64) {
	t.Helper()
	if round == 0 {
		if round = roundOf(t, l.resources[0]); round < l.firstRound || round > l.lastRound {
			t.Errorf("the listing shows round %d; it began after %d and before %d", round, l.firstRound, l.lastRound)
		}
	}
	next := 0
	for i := range resources {
		if round%2 == 0 && i%3 == 0 {
			continue
		}
		name := fmt.Sprintf("%02d", i)
		if next >= len(l.resources) || l.resources[next].Id.Name != name || roundOf(t, l.resources[next]) != round {
			t.Fatalf("%v are listed; expected %s of round %d after %d of them", l.resources, name, round, next)
		}
		next++
	}
	if next != len(l.resources) {
		t.Errorf("%d resources are listed, expected %d", len(l.resources), next)
	}
}

func roundOf(t *testing.T, res *resourcepb.Resource) (round int64) {
	t.Helper()
	if _, err := fmt.Sscan(string(res.Data.GetValue()), &round); err != nil {
		t.Fatal(err)
	}
	return round
}
