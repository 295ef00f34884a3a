package conformance

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

const needRounds = needURL | needProcesses | needPager | needTransactor | needOneCut

// processCases read listings in pages, each page in another process, while one of these processes writes.
var processCases = topic{"Processes", []testCase{
	{name: "Pages", needs: needRounds, run: processPages},
	{name: "Revisions", needs: needRounds | needHistorian, run: processRevisions},
}}

// processPages continues listings in processes that did not begin them. The last one is opened when the listing has begun.
func processPages(s *suite) {
	processes := faults.NewProcesses(s.url)
	there := inProcess(s, processes)
	w := startRounds(s, there)
	for _, handles := range [][]storage.Backend{{s.b, there}, {there, s.b}} {
		before := w.last.Load()
		l := roundListing{}
		l.page(s, handles[0])
		after := w.last.Load() + 1 // one more may have been carried out
		handles = append(handles, inProcess(s, processes))
		for i := 1; l.token != ""; i++ {
			w.next(s)
			l.page(s, handles[i%len(handles)])
		}
		w.check(s, l.resources, before, after)
	}
}

// processRevisions reads a revision of one process in the others.
func processRevisions(s *suite) {
	there := inProcess(s, faults.NewProcesses(s.url))
	w := startRounds(s, there)
	for range 3 {
		w.next(s)
		scan, err := s.historian().Scan(s.ctx, history.Range{}, history.ScanOptions{})
		s.noError("Scan", err)
		l := roundListing{revision: scan.Revision}
		for i := 0; i == 0 || l.token != ""; i++ {
			w.next(s)
			l.page(s, []storage.Backend{there, s.b}[i%2])
		}
		round := roundOf(scan.Records[0].Resource)
		w.check(s, l.resources, round, round)
		again, err := s.historian().Scan(s.ctx, history.Range{}, history.ScanOptions{Revision: scan.Revision})
		s.noError("Scan of an earlier revision", err)
		var scanned []*resourcepb.Resource
		for _, r := range again.Records {
			scanned = append(scanned, r.Resource)
		}
		s.equalLists("Scan of an earlier revision, compared with its pages in other processes", scanned, l.resources)
	}
}

// inProcess opens a handle in another process.
func inProcess(s *suite, processes *faults.Processes) storage.Backend {
	s.Helper()
	b, err := processes.Open(s.ctx)
	s.noError("opening a handle in another process", err)
	s.closeAtEnd(b)
	return b
}

// rounds writes the same resources in each round, in one transaction, with the number of the round. In every second round it deletes
// every third resource instead; the next round creates these again.
type rounds struct {
	size    int
	last    atomic.Int64 // the last acknowledged round
	failure atomic.Pointer[error]
}

func startRounds(s *suite, b storage.Backend) *rounds {
	s.Helper()
	tx := capability[storage.Transactor](s.target, b)
	w := &rounds{size: min(30, tx.MaxOps())}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		stored := make([]*resourcepb.Resource, w.size)
		for round := int64(1); ; round++ {
			select {
			case <-stop:
				return
			default:
			}
			ops := make([]storage.Op, w.size)
			for i, old := range stored {
				if isDeletion(round, i) {
					ops[i] = storage.Op{Delete: old.Id, Version: old.Version}
					continue
				}
				ops[i].Write = thingNamed(fmt.Sprintf("%02d", i))
				ops[i].Write.Data, ops[i].Write.Version = payload(fmt.Sprint(round)), old.GetVersion()
			}
			var err error
			if stored, err = tx.Commit(s.ctx, ops); err != nil {
				w.failure.Store(&err)
				return
			}
			w.last.Store(round)
		}
	}()
	s.Cleanup(func() {
		close(stop)
		<-done
	})
	w.next(s)
	return w
}

func isDeletion(round int64, i int) bool { return round%2 == 0 && i%3 == 0 }

// next waits for the next acknowledged round.
func (w *rounds) next(s *suite) {
	s.Helper()
	before := w.last.Load()
	s.eventually("the other process writes", func() error {
		if err := w.failure.Load(); err != nil {
			s.Fatalf("Commit in another process: %v", *err)
		}
		if w.last.Load() > before {
			return nil
		}
		return errors.New("no transaction was acknowledged")
	})
}

// check compares resources with those of one of the rounds from first to last.
func (w *rounds) check(s *suite, resources []*resourcepb.Resource, first, last int64) {
	s.Helper()
	if len(resources) == 0 {
		s.Fatal("a listing in several processes is empty")
	}
	round := roundOf(resources[0])
	if round < first || round > last {
		s.Errorf("a listing in several processes shows round %d; it began between the rounds %d and %d", round, first, last)
	}
	var got, want []string
	for _, res := range resources {
		got = append(got, fmt.Sprint(res.Id.Name, " of round ", roundOf(res)))
	}
	for i := range w.size {
		if !isDeletion(round, i) {
			want = append(want, fmt.Sprintf("%02d of round %d", i, round))
		}
	}
	if !slices.Equal(got, want) {
		s.Fatalf("a listing in several processes has %q, want %q", got, want)
	}
}

func roundOf(res *resourcepb.Resource) (round int64) {
	var text wrapperspb.StringValue
	if res.GetData().UnmarshalTo(&text) == nil {
		_, _ = fmt.Sscan(text.Value, &round) // 0 is no round
	}
	return round
}

// roundListing is a listing that is read in pages.
type roundListing struct {
	revision  int64
	token     string
	resources []*resourcepb.Resource
}

// page reads the next page.
func (l *roundListing) page(s *suite, b storage.Backend) {
	s.Helper()
	page := s.page(capability[storage.Pager](s.target, b), homeThings, storage.ListOptions{Consistency: strong, Limit: 7, Continue: l.token, Revision: l.revision})
	l.resources, l.token = append(l.resources, page.Resources...), page.Continue
}
