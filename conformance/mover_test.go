package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// shared is the state that the handles of one store share.
type shared struct {
	writes atomic.Int64
	lists  atomic.Int64
	stale  atomic.Bool

	takeover    atomic.Bool // a takeover waits for a delayed write
	delayedCh   chan struct{}
	listedCh    chan struct{}
	closeListed func() // closes listedCh
}

func newShared() *shared {
	s := &shared{delayedCh: make(chan struct{}), listedCh: make(chan struct{})}
	s.closeListed = sync.OnceFunc(func() { close(s.listedCh) })
	return s
}

// awaitWrites waits until a number of lists is exceeded, and then for more writes. The writers write until they are refused.
func (s *shared) awaitWrites(lists int64) {
	for s.lists.Load() == lists {
		runtime.Gosched()
	}
	for wanted := s.writes.Load() + 20; s.writes.Load() < wanted; {
		runtime.Gosched()
	}
}

// A moverDefect is a backend with one bug, with the case that must find it and the failure of that case.
type moverDefect struct {
	bug   string
	by    string
	says  string // a regular expression
	spoil func(h *moverBackend, s *shared)
}

var moverDefects = []moverDefect{
	{"notes are overwritten", "Mover/Notes", "creating it again: got <nil>", func(h *moverBackend, _ *shared) { h.GuardedMover = overwriting{h.GuardedMover} }},
	{"notes have one revision", "Mover/Notes", "must differ", func(h *moverBackend, _ *shared) { h.GuardedMover = unrevised{h.GuardedMover} }},
	{"notes are the handle's own", "Mover/Notes", "creating it again: got <nil>", func(h *moverBackend, _ *shared) { h.GuardedMover = private(h.GuardedMover) }},
	{"deletes ignore the revision", "Mover/Notes", "deleting an old revision: got <nil>", func(h *moverBackend, _ *shared) { h.GuardedMover = deleting{h.GuardedMover} }},
	{"deleting none fails", "Mover/Notes", "another|CAS|compare-and-swap", func(h *moverBackend, _ *shared) { h.GuardedMover = once{h.GuardedMover} }},
	{"large notes are cut", "Mover/Notes", "the other handle's note: got 65535 bytes", func(h *moverBackend, _ *shared) { h.GuardedMover = cutting{h.GuardedMover} }},
	{"empty notes are none", "Mover/Notes", "an empty note", func(h *moverBackend, _ *shared) { h.GuardedMover = emptyIsNone{h.GuardedMover} }},
	{"names have no bounds", "Mover/NoteLimits", `writing a note named "": got <nil>, expected ErrInvalid`, func(h *moverBackend, _ *shared) { h.GuardedMover = boundless{h.GuardedMover} }},
	{"values have no bound", "Mover/NoteLimits", "one byte too many: got <nil>", func(h *moverBackend, _ *shared) { h.GuardedMover = boundless{h.GuardedMover} }},
	{"notes are resources", "Mover/NotesAndFenceAreHidden", "the watch shows an event that no caller made", func(h *moverBackend, _ *shared) { h.GuardedMover = visible{h.GuardedMover, h.Backend} }},
	{"a fence that does nothing", "Mover/FenceRefusesWrites", `Closed:false`, func(h *moverBackend, _ *shared) { h.GuardedMover = unfenced{h.GuardedMover} }},
	{"the first target stays", "Mover/FenceRefusesWrites", "Target:etcd://first", func(h *moverBackend, _ *shared) { h.GuardedMover = firstTarget{h.GuardedMover} }},
	{"updates pass the fence", "Mover/FenceRefusesWrites", "update: got <nil>", func(h *moverBackend, _ *shared) { h.Backend = updatesPass{h.Backend} }},
	{"deletes pass the fence", "Mover/FenceRefusesWrites", "delete: got <nil>", func(h *moverBackend, _ *shared) { h.Backend = deletesPass{h.Backend} }},
	{"transactions pass the fence", "Mover/FenceRefusesWrites", "larger transaction: got <nil>", func(h *moverBackend, _ *shared) { h.commit = passing }},
	{"the fence refuses notes", "Mover/FenceRefusesWrites", "moved", func(h *moverBackend, _ *shared) { h.GuardedMover = fencedNotes{h.GuardedMover} }},
	{"the fence stays closed", "Mover/FenceOpens", "Closed:true", func(h *moverBackend, _ *shared) { h.GuardedMover = stuck{h.GuardedMover} }},
	{"the fence comes late", "Mover/FenceUnderLoad", "and .* later|was acknowledged, but was not there", func(h *moverBackend, s *shared) {
		h.Backend, h.GuardedMover = counting{h.Backend, s}, &late{GuardedMover: h.GuardedMover, s: s}
	}},
	{"what the fence refuses is acknowledged", "Mover/FenceUnderLoad", "was acknowledged, but was not there", func(h *moverBackend, _ *shared) { h.Backend = &lying{Backend: h.Backend} }},
	{"epochs are not compared", "Mover/Epochs", "an epoch that never was: got <nil>", func(h *moverBackend, _ *shared) { h.GuardedMover = anyEpoch{h.GuardedMover} }},
	{"a conflict changes the fence", "Mover/Epochs", "it changed the fence", func(h *moverBackend, _ *shared) { h.GuardedMover = changing{h.GuardedMover} }},
	{"what is open keeps its epoch", "Mover/Epochs", "expected another epoch|opening an open store", func(h *moverBackend, _ *shared) { h.GuardedMover = lazyOpening{h.GuardedMover} }},
	{"epochs come again", "Mover/Epochs", "expected another epoch", func(h *moverBackend, _ *shared) { h.GuardedMover = twoEpochs{h.GuardedMover} }},
	{"writes ignore guards", "Mover/Guards", "create: got <nil>, expected ErrSuperseded", func(h *moverBackend, _ *shared) { h.Backend = unguarded{h.Backend} }},
	{"transactions ignore guards", "Mover/Guards", "transaction: got <nil>, expected ErrSuperseded", func(h *moverBackend, _ *shared) { h.commit = withoutGuard(h.Backend) }},
	{"a guard holds up others", "Mover/Guards", "beside it: ", func(h *moverBackend, s *shared) { h.Backend = contagious{h.Backend, s} }},
	{"guards are read before the write", "Mover/GuardsUnderLoad", "and .* later", func(h *moverBackend, s *shared) {
		l := leased{h.Backend, h.GuardedMover, s}
		h.Backend, h.GuardedMover = l, l
	}},
	{"a fence that admits the tool admits all", "Mover/FenceAdmits", "without a guard, .*: got <nil>", func(h *moverBackend, _ *shared) { h.GuardedMover = otherFence{h.GuardedMover, openFence} }},
	{"a fence that admits the tool admits any guard", "Mover/FenceAdmits", "under another note, .*: got <nil>", func(h *moverBackend, _ *shared) { h.Backend = anyGuard{h.Backend} }},
	{"a fence admits nobody", "Mover/FenceAdmits", "it has moved to mem://source", func(h *moverBackend, _ *shared) { h.GuardedMover = otherFence{h.GuardedMover, forgetsMove} }},
	{"a fence that admits the tool ignores revisions", "Mover/FenceAdmits", "under another revision, .*: got <nil>", func(h *moverBackend, _ *shared) { h.Backend = anyRevision{h.Backend, h.GuardedMover} }},
	{"a fence that admits the tool comes late", "Mover/FenceAdmitsUnderLoad", "and .* later", func(h *moverBackend, s *shared) {
		h.Backend, h.GuardedMover = counting{h.Backend, s}, &lateAdmission{h.GuardedMover, s}
	}},
	{"a moved store is merely closed", "Mover/Moved", "a MovedError with the target", func(h *moverBackend, _ *shared) { h.GuardedMover = otherFence{h.GuardedMover, forgetsMove} }},
	{"a moved store loses the cursor", "Mover/Moved", "a MovedError with the target", func(h *moverBackend, _ *shared) { h.GuardedMover = otherFence{h.GuardedMover, forgetsCursor} }},
	{"a moved store is read", "Mover/Moved", "a read of an absent resource: got .*not found|a read: got <nil>", func(h *moverBackend, _ *shared) { h.Backend = readable{h.Backend} }},
	{"a moved store is listed", "Mover/Moved", "a list: got <nil>", func(h *moverBackend, _ *shared) { h.Backend = listable{h.Backend} }},
	{"a moved store is listed in pages", "Mover/Moved", "a page: got <nil>", func(h *moverBackend, _ *shared) { h.Pager = pageable{h.Pager} }},
	{"a moved store continues listings", "Mover/Moved", "a later page: got <nil>", func(h *moverBackend, _ *shared) { h.Pager = continuing{h.Pager} }},
	{"a moved store is scanned", "Mover/Moved", "a scan: got <nil>", func(h *moverBackend, _ *shared) { h.Historian = scannable{h.Historian} }},
	{"a moved store has no eventual reads", "Mover/Moved", "an eventual read: ", func(h *moverBackend, _ *shared) { h.Backend = onlyStrong{h.Backend} }},
	{"a tool cannot read a moved store", "Mover/Moved", "of a tool: ", func(h *moverBackend, _ *shared) { h.Backend = sameForTools{h.Backend} }},
	{"a watch of a moved store ends before its last change", "Mover/Moved", "a watch returned", func(h *moverBackend, _ *shared) { h.Backend = endsEarly{h.Backend} }},
	{"loads ignore guards", "Mover/GuardedLoads", "got <nil>, expected ErrSuperseded", func(h *moverBackend, _ *shared) { h.loader = unguardedLoader{h.loader} }},
	{"steps end at the first", "Mover/BulkReads", "rows, or out of order", func(h *moverBackend, _ *shared) { h.bulkReader = oneStep{h.bulkReader} }},
	{"steps go backwards", "Mover/BulkReads", "out of order", func(h *moverBackend, _ *shared) { h.bulkReader = backwards{h.bulkReader} }},
	{"a step has one row too many", "Mover/BulkReads", "limit 1: got 2 rows", func(h *moverBackend, _ *shared) { h.bulkReader = generous{h.bulkReader} }},
	{"steps have no bound of bytes", "Mover/BulkReads", "bytes together", func(h *moverBackend, _ *shared) { h.bulkReader = whole{h.bulkReader} }},
	{"a row of an undamaged store is said to be wrong", "Mover/Columns", "CheckColumns", func(h *moverBackend, _ *shared) { h.bulkReader = suspicious{h.bulkReader} }},
	{"rows have no version", "Mover/BulkReads", "differs from the written resource", func(h *moverBackend, _ *shared) { h.bulkReader = versionless{h.bulkReader} }},
	{"owners are not loaded", "Mover/LoadContent", "expected", func(h *moverBackend, _ *shared) { h.loader = ownerless{h.Backend} }},
	{"the last row is not loaded", "Mover/LoadContent", "the list holds 999", func(h *moverBackend, _ *shared) { h.loader = short{h.loader} }},
	{"loads replace", "Mover/LoadAllOrNothing", "one is there: got <nil>", func(h *moverBackend, _ *shared) { h.loader = replacing{h.Backend} }},
	{"loads stop in the middle", "Mover/LoadAllOrNothing", "the store holds", func(h *moverBackend, _ *shared) { h.loader = loadInParts{h.Backend} }},
	{"loads come twice", "Mover/LoadWatched", "event", func(h *moverBackend, _ *shared) { h.loader = twice{h.loader, h.Backend} }},
}

// moverBackend is a handle on a store in memory, and all that a migration can ask of a backend.
type moverBackend struct {
	storage.Backend
	driver.GuardedMover
	storage.Pager
	history.Historian
	bulkReader
	loader
	commit func(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error)
}

// As implements the interface that storage.As uses first.
func (h *moverBackend) As(target any) bool {
	switch t := target.(type) {
	case *driver.Mover:
		*t = h.GuardedMover
	case *driver.GuardedMover:
		*t = h.GuardedMover
	case *driver.ColumnChecker:
		*t = h
	case *driver.Bulk:
		*t = h
	case *storage.Transactor:
		*t = h
	case *storage.Pager:
		*t = h.Pager
	case *history.Historian:
		*t = h.Historian
	default:
		return false
	}
	return true
}

// MaxOps implements storage.Transactor.
func (*moverBackend) MaxOps() int { return 32 }

// Commit implements storage.Transactor.
func (h *moverBackend) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	return h.commit(ctx, ops)
}

// openMover opens a handle without defects on the store of that name.
func openMover(t testing.TB, name string) *moverBackend {
	b := must[storage.Backend](t)(storage.Open(t.Context(), "mem://"+name))
	m, _ := storage.As[driver.GuardedMover](b)
	transactor, _ := storage.As[storage.Transactor](b)
	pager, _ := storage.As[storage.Pager](b)
	past, _ := storage.As[history.Historian](b)
	return &moverBackend{Backend: b, GuardedMover: m, Pager: pager, Historian: past, bulkReader: &listed{Backend: b}, loader: committed{b}, commit: transactor.Commit}
}

// listed reads in steps from one list of the store. It lists when the store is no longer empty.
type listed struct {
	storage.Backend
	all []*resourcepb.Resource
}

func (l *listed) ReadAfter(ctx context.Context, after []byte, limit int) (rows []driver.Row, err error) {
	if len(l.all) == 0 {
		if l.all, err = l.List(ctx, strong, anything, anywhere, ""); err != nil {
			return nil, err
		}
	}
	size := 0
	for _, res := range l.all {
		k := key.Of(res.Id)
		if after != nil && bytes.Compare(k.Bytes(), after) <= 0 {
			continue
		}
		if len(rows) == limit || size >= driver.ReadBytes {
			break
		}
		data, err := driver.Encode(res)
		if err != nil {
			return nil, err
		}
		size += len(data)
		rows = append(rows, driver.Row{Key: k, Version: res.Version, Data: data})
	}
	return rows, nil
}

// CheckColumns finds nothing, because the reference store has no columns.
func (l *listed) CheckColumns(ctx context.Context, after []byte, limit int) (wrong []driver.Key, last []byte, err error) {
	rows, err := l.ReadAfter(ctx, after, limit)
	if len(rows) > 0 {
		last = rows[len(rows)-1].Key.Bytes()
	}
	return nil, last, err
}

// committed loads by one transaction.
type committed struct{ storage.Backend }

func (c committed) Load(ctx context.Context, rows []driver.Row) error {
	all, err := decoded(rows)
	if err != nil {
		return err
	}
	return commit(ctx, c.Backend, all)
}

func decoded(rows []driver.Row) ([]*resourcepb.Resource, error) {
	all := make([]*resourcepb.Resource, len(rows))
	for i, row := range rows {
		var err error
		if all[i], err = driver.Decode(row.Key, row.Data, ""); err != nil {
			return nil, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
		}
	}
	return all, nil
}

// commit writes resources in one transaction.
func commit(ctx context.Context, b storage.Backend, all []*resourcepb.Resource) error {
	ops := make([]storage.Op, len(all))
	for i, res := range all {
		ops[i].Write = res
	}
	t, _ := storage.As[storage.Transactor](b)
	_, err := t.Commit(ctx, ops)
	return err
}

// checkMover runs one case against a backend with a defect and returns its failure.
func checkMover(t *testing.T, name string, spoil func(h *moverBackend, s *shared)) string {
	stores := make(map[storage.Backend]string)
	states := make(map[string]*shared)
	open := func(t testing.TB, name string) storage.Backend {
		b := openMover(t, name)
		stores[b] = name
		if states[name] == nil {
			states[name] = newShared()
		}
		if spoil != nil {
			spoil(b, states[name])
		}
		return b
	}
	h := Harness{
		Open:    func(t testing.TB) storage.Backend { return open(t, rand.Text()) },
		Another: func(t testing.TB, b storage.Backend) storage.Backend { return open(t, stores[b]) },
	}
	h.complete(t)
	return checkCase(t.Context(), &h, name, caseNamed(t, name)).Failure
}

// TestMoverReference makes sure that a defect is not found merely because of its wrapper.
func TestMoverReference(t *testing.T) {
	t.Parallel()
	for _, c := range moverCases.cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if failure := checkMover(t, "Mover/"+c.name, nil); failure != "" {
				t.Errorf("the case fails on a backend without defects: %s", failure)
			}
		})
	}
}

// TestMoverDefects checks that each defect is found by its case, and that each case finds one.
func TestMoverDefects(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for _, d := range moverDefects {
		found[d.by] = true
		t.Run(d.bug+", "+d.by, func(t *testing.T) {
			t.Parallel()
			if failure := checkMover(t, d.by, d.spoil); !regexp.MustCompile(d.says).MatchString(failure) {
				t.Errorf("the case did not report %q, but: %q", d.says, failure)
			}
		})
	}
	for _, c := range moverCases.cases {
		if !found["Mover/"+c.name] {
			t.Errorf("no defect is planted for case Mover/%s", c.name)
		}
	}
}

// bulkReader and loader are the halves of a driver.Bulk.
type bulkReader interface {
	ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error)
	CheckColumns(ctx context.Context, after []byte, limit int) (wrong []driver.Key, last []byte, err error)
}

type loader interface {
	Load(ctx context.Context, rows []driver.Row) error
}
