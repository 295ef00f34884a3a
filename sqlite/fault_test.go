package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// faultyFS is a file system whose operations fail on request.
type faultyFS struct {
	vfs.VFSFilename
	failSyncs       atomic.Int32           // number of syncs of the -wal file that fail
	failWrites      atomic.Int32           // number of writes to the -wal file that find the disk full
	onFullWrite     atomic.Pointer[func()] // called before a write fails, unless nil
	failReads       atomic.Int32           // number of reads of any file that fail
	onFailedSync    atomic.Pointer[func()] // called when a sync fails, unless nil
	failAfterCommit atomic.Int32           // number of commits that fail after they took effect
	onCommit        atomic.Pointer[func()] // called when a commit has taken effect, unless nil
	onOpen          atomic.Pointer[func()] // called when the database file has been opened, unless nil
	refuseLocks     atomic.Bool            // locks on files are refused
}

func (f *faultyFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	file, flags, err := f.VFSFilename.OpenFilename(name, flags)
	if err != nil {
		return nil, flags, err
	}
	if opened := f.onOpen.Load(); opened != nil && flags&vfs.OPEN_MAIN_DB != 0 {
		(*opened)()
	}
	return &faultyFile{file, f, strings.HasSuffix(name.String(), "-wal")}, flags, nil
}

type faultyFile struct {
	vfs.File
	faults *faultyFS
	wal    bool
}

var _ vfs.FileCommitPhaseTwo = (*faultyFile)(nil)

func (f *faultyFile) SharedMemory() vfs.SharedMemory {
	return f.File.(vfs.FileSharedMemory).SharedMemory()
}

func (f *faultyFile) Sync(flags vfs.SyncFlag) error {
	if f.wal && f.faults.failSyncs.Load() > 0 {
		f.faults.failSyncs.Add(-1)
		if broken := f.faults.onFailedSync.Load(); broken != nil {
			(*broken)()
		}
		return sqlite3.IOERR_FSYNC
	}
	return f.File.Sync(flags)
}

func (f *faultyFile) WriteAt(b []byte, at int64) (int, error) {
	if f.wal && f.faults.failWrites.Load() > 0 {
		f.faults.failWrites.Add(-1)
		if full := f.faults.onFullWrite.Load(); full != nil {
			(*full)()
		}
		return 0, sqlite3.FULL
	}
	return f.File.WriteAt(b, at)
}

// newFaultyFS registers a file system that has the name of the test.
func newFaultyFS(t *testing.T) *faultyFS {
	f := &faultyFS{VFSFilename: vfs.Find("os").(vfs.VFSFilename)}
	vfs.Register(t.Name(), f)
	t.Cleanup(func() { vfs.Unregister(t.Name()) })
	return f
}

func openFaulty(t *testing.T) (*Backend, *faultyFS) {
	f := newFaultyFS(t)
	return open(t, newPath(t), &Options{vfs: t.Name()}), f
}

// A sync or write that fails once is repeated: callers get no error, and watches see each version once.
func TestCommitFailsOnce(t *testing.T) {
	t.Parallel()
	s, f := openFaulty(t)
	w := fixture.WatchChanges(t, s)
	for _, fault := range []*atomic.Int32{&f.failSyncs, &f.failWrites} {
		for _, n := range []int{1, 20} {
			fault.Store(1)
			var callers sync.WaitGroup
			var mu sync.Mutex
			versions := map[string]string{}
			for i := range n {
				callers.Go(func() {
					res, err := s.WriteCAS(t.Context(), resource(fmt.Sprintf("%p-%d-%d", fault, n, i), 1))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					versions[res.Id.Name] = res.Version
					mu.Unlock()
				})
			}
			callers.Wait()
			for range n {
				res := fixture.Next(t, w).GetUpsert().GetResource()
				if v, ok := versions[res.GetId().GetName()]; !ok || v != res.Version {
					t.Errorf("the watch returned %v, the caller got version %q", res, v)
				}
				delete(versions, res.GetId().GetName())
			}
		}
	}
}

// While the disk fails, writes fail with ErrInconsistent, because a crash may restore them.
func TestCommitKeepsFailing(t *testing.T) {
	t.Parallel()
	s, f := openFaulty(t)
	for what, fault := range map[error]*atomic.Int32{sqlite3.IOERR_FSYNC: &f.failSyncs, sqlite3.FULL: &f.failWrites} {
		fault.Store(1000)
		_, err := s.WriteCAS(t.Context(), resource("a", 1))
		if !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, what) {
			t.Errorf("got error %v, expected ErrInconsistent and %v", err, what)
		}
		fault.Store(0)
		if _, err := s.Read(t.Context(), storage.StrongConsistency, idOf("a")); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("read after the failure: %v, expected ErrNotFound", err)
		}
	}
	fixture.Write(t, s, resource("a", 1))
	again := open(t, s.Path(), nil)
	if got := names(t, again); got != "a " {
		t.Errorf("the store has %q, expected a", got)
	}
}

// newTestWriter returns another writer of a store, with a connection of its own.
func newTestWriter(t *testing.T, s *Backend) *writer {
	t.Helper()
	c, err := s.handle.connect(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	return &writer{database: s.handle.database, source: s.handle.source, conn: c}
}

// resolveOutcome determines from the log whether a failed commit took effect.
func TestResolveOutcome(t *testing.T) {
	t.Parallel()
	w := newTestWriter(t, open(t, newPath(t), nil))
	tx, err := w.begin()
	if err != nil {
		t.Fatal(err)
	}
	ch := mutation{Mutation: &driver.Mutation{Verb: driver.Write, Uid: "u"}, key: []byte("g\x00k\x00\x00\x00n"), data: []byte{1}}
	if refused, err := tx.change(&ch); refused != nil || err != nil {
		t.Fatal(refused, err)
	}
	lost := tx
	lost.last.tag++
	if err := w.conn.exec("commit"); err != nil {
		t.Fatal(err)
	}
	if err := w.resolveOutcome(&tx, sqlite3.IOERR); err != nil || len(w.commits) != 1 || w.commits[0].end != tx.last {
		t.Errorf("a commit that took effect: commits %v, error %v", w.commits, err)
	}
	if err := w.resolveOutcome(&lost, sqlite3.IOERR); len(w.commits) != 1 || !errors.Is(err, errUnknownOutcome) || !errors.Is(err, sqlite3.IOERR) {
		t.Errorf("a commit without effect: commits %v, error %v", w.commits, err)
	}
}

// Rows of failed commits are not in the log. They do not count against its bound in bytes, so rows in the log are kept.
func TestRetentionIgnoresFailedCommits(t *testing.T) {
	t.Parallel()
	s, f := openFaulty(t)
	w := newTestWriter(t, s)
	w.log = retention{age: fixture.Timeout, rows: 1 << 40, bytes: 1 << 20}
	finish := func(i, size int) error {
		t.Helper()
		tx, err := w.begin()
		if err != nil {
			t.Fatal(err)
		}
		m := &driver.Mutation{Verb: driver.Write, Uid: "u"}
		ch := mutation{Mutation: m, key: fmt.Appendf(nil, "g\x00k\x00\x00\x00%d", i), data: make([]byte, size)}
		return w.applyAndCommit(&tx, []*request{{mutations: []mutation{ch}}})
	}
	if err := finish(0, 600<<10); err != nil { // make the whole database larger than the bound
		t.Fatal(err)
	}
	for i := range 10 {
		f.failSyncs.Store(1)
		if err := finish(i+1, 300<<10); !errors.Is(err, errUnknownOutcome) {
			t.Fatalf("a commit whose sync fails: got error %v, expected errUnknownOutcome", err)
		}
		if err := finish(i+1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := finish(11, 260<<10); err != nil { // large enough that the writer checks the bound
		t.Fatal(err)
	}
	if sp, err := w.conn.readableRange(); sp.horizon != 0 || err != nil {
		t.Errorf("history begins at row %d, error %v, although it is smaller than its bound", sp.horizon, err)
	}
}

func (f *faultyFile) ReadAt(b []byte, at int64) (int, error) {
	if f.faults.failReads.Load() > 0 {
		f.faults.failReads.Add(-1)
		return 0, sqlite3.IOERR_READ
	}
	return f.File.ReadAt(b, at)
}

// CommitPhaseTwo implements vfs.FileCommitPhaseTwo. SQLite calls it when the commit is visible to all readers.
func (f *faultyFile) CommitPhaseTwo() error {
	if committed := f.faults.onCommit.Load(); committed != nil {
		(*committed)()
	}
	if f.faults.failAfterCommit.Load() > 0 {
		f.faults.failAfterCommit.Add(-1)
		return sqlite3.IOERR
	}
	return nil
}

// Lock implements vfs.File.
func (f *faultyFile) Lock(lock vfs.LockLevel) error {
	if f.faults.refuseLocks.Load() {
		return sqlite3.BUSY
	}
	return f.File.Lock(lock)
}
