package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

func logLength(t testing.TB, s *Backend) (length, first int64) {
	t.Helper()
	c, err := s.handle.readers.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.handle.readers.give(c)
	stmt, _, err := c.db.Prepare("SELECT count(*), min(seq) FROM log")
	if err != nil {
		t.Fatal(err)
	}
	if stmt.Step() {
		length, first = stmt.ColumnInt64(0), stmt.ColumnInt64(1)
	}
	if err := errors.Join(stmt.Err(), stmt.Close()); err != nil {
		t.Fatal(err)
	}
	return length, first
}

// churn makes so many changes or a few more, and returns when the watch has shown them all.
func churn(t testing.TB, s *Backend, w storage.Watch, changes int) {
	t.Helper()
	ops := make([]storage.Op, maxOps)
	for i := range ops {
		ops[i].Write = resource(fmt.Sprint("churn-", i), 0)
		if old, err := s.Read(t.Context(), storage.StrongConsistency, ops[i].Write.Id); err == nil {
			ops[i].Write.Version = old.Version
		}
	}
	for made := 0; made < changes; made += len(ops) {
		results, err := s.Commit(t.Context(), ops)
		if err != nil {
			t.Fatal(err)
		}
		for i, res := range results {
			wantUpsert(t, w, res)
			ops[i].Write = res
		}
	}
}

// The log is bounded; cursors that are older are compacted, younger ones go on, and watches that keep up never notice.
func TestRetention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options Options
		bound   int64
	}{
		"few rows":  {Options{RetentionRows: 1, minRetention: 1}, pruneNever},
		"many rows": {Options{RetentionRows: 3 * pruneNever / 2, minRetention: 1}, 3 * pruneNever / 2},
		"age":       {Options{Retention: 1, minRetention: 1}, pruneNever},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			s := open(t, path, &c.options)
			w := fixture.WatchChanges(t, s)
			early := w.Cursor()
			churn(t, s, w, 5*pruneNever/2)
			if length, _ := logLength(t, s); length > c.bound+pruneEvery+maxOps || length < c.bound {
				t.Errorf("the log has %d rows, the bound is %d", length, c.bound)
			}
			resumed, err := s.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", early)
			if err == nil {
				_, err = nextError(t, resumed)
				resumed.Close()
			}
			if !errors.Is(err, storage.ErrCompacted) {
				t.Errorf("a cursor from before the oldest row: %v, expected ErrCompacted", err)
			}
			// Also in a handle that is opened later.
			late := w.Cursor()
			again := open(t, path, nil)
			resumed, err = again.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", late)
			if err != nil {
				t.Fatal(err)
			}
			wantUpsert(t, resumed, fixture.Write(t, again, resource("new", 0)))
			resumed.Close()
		})
	}
}

// However little history is to be kept, a continue token lives for as long as is promised: what is younger stays. When it has grown
// older it goes, and also when the clock was set back, so that nobody can tell how old it is.
func TestRetentionKeepsTokens(t *testing.T) {
	t.Parallel()
	const minute = int64(time.Minute / time.Millisecond)
	for name, c := range map[string]struct {
		shift int64 // of the time of what was written, in ms
		gone  bool
	}{
		"young":            {-4 * minute, false},
		"old":              {-6 * minute, true},
		"a clock set back": {6 * minute, true},
		"a clock put back": {minute, false}, // as far as a clock that is corrected
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, newPath(t), &Options{RetentionRows: 1})
			fixture.Write(t, s, resource("a", 1))
			fixture.Write(t, s, resource("b", 1))
			token := page(t, s, 1, "").Continue
			w := fixture.WatchChanges(t, s)
			churn(t, s, w, 3*pruneNever/2)
			execSQL(t, openDirect(t, s.Path()), fmt.Sprintf("UPDATE log SET written = written + %d", c.shift))
			churn(t, s, w, pruneNever/2)
			rest, err := s.ListPage(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{Continue: token})
			switch {
			case c.gone && !errors.Is(err, storage.ErrCompacted):
				t.Errorf("the listing goes on with %v, %v; expected ErrCompacted", namesOf(rest.Resources), err)
			case !c.gone && (err != nil || fmt.Sprint(namesOf(rest.Resources)) != "[b]"):
				t.Errorf("the listing goes on with %v, %v", namesOf(rest.Resources), err)
			}
		})
	}
}

// When the clock is set back the log stays in order of time, so that it is pruned from its end.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	res := fixture.Write(t, s, resource("a", 0))
	execSQL(t, openDirect(t, s.Path()), "UPDATE log SET written = 1000000000000000")
	fixture.Write(t, s, res)
	c, err := s.handle.readers.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.handle.readers.give(c)
	tx, err := newTxn(c, nil)
	if err != nil || tx.at != 1000000000000000 || tx.last.seq != 2 {
		t.Errorf("the next row would be from %d after number %d, %v", tx.at, tx.last.seq, err)
	}
}

// A change whose writer died before it rang is found all the same.
func TestChangeWithoutNotification(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	w := fixture.WatchChanges(t, s)
	insertUnannounced(t, s, "quiet", position{1, 77})
	res := resource("quiet", 1)
	res.Version = position{1, 77}.version()
	wantUpsert(t, w, res)
}

// insertUnannounced writes a resource without telling anybody.
func insertUnannounced(t testing.TB, s *Backend, name string, m position) {
	t.Helper()
	res := resource(name, 1)
	data, err := codec.Encode(res)
	if err != nil {
		t.Fatal(err)
	}
	bytes := sqlite3.Quote(key.Of(res.Id).Bytes())
	execSQL(t, openDirect(t, s.Path()), fmt.Sprintf(`BEGIN IMMEDIATE;
		INSERT INTO resources (key, seq, tag, uid, group_version, data) VALUES (%s, %d, %d, 'uid', 'v1', %s);
		INSERT INTO log (seq, tag, written, key, data) VALUES (%[2]d, %[3]d, 0, %[1]s, %[4]s);
		COMMIT`, bytes, m.seq, m.tag, sqlite3.Quote(data)))
}

// The bell may die: watches of other handles still see what is written.
func TestLockFileRemoved(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, nil)
	other := open(t, path, nil)
	w := fixture.WatchChanges(t, s)
	wantUpsert(t, w, fixture.Write(t, other, resource("before", 1)))
	if err := os.Remove(s.handle.lockFile.path); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		wantUpsert(t, w, fixture.Write(t, other, resource(fmt.Sprint("after-", i), 1)))
	}
	third := open(t, path, nil) // makes a new bell
	wantUpsert(t, w, fixture.Write(t, third, resource("third", 1)))
}

func TestUnwatchedLockFile(t *testing.T) {
	t.Parallel()
	b := watchLockFile(filepath.Join(t.TempDir(), "absent"))
	defer b.close()
	if b.watcher != nil || b.await(t.Context(), nil) != signalPoll {
		t.Error("a bell that cannot be heard has to be looked at")
	}
}

// When an older copy of the database is put in place under a running watch, the numbers of new rows have been seen before.
// The watch must not go on as if nothing had happened.
func TestReplacedHistory(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"shorter":   "DELETE FROM log WHERE seq > 1",
		"empty":     "DELETE FROM log",
		"other":     "UPDATE log SET tag = tag + 1",
		"with gaps": "DELETE FROM log WHERE seq = 2; INSERT INTO log (seq, tag, written, key, data) SELECT 5, 1, written, key, data FROM log WHERE seq = 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, newPath(t), nil)
			w := fixture.WatchChanges(t, s)
			a, b := fixture.Write(t, s, resource("a", 1)), fixture.Write(t, s, resource("b", 1))
			wantUpsert(t, w, a)
			wantUpsert(t, w, b)
			cursor := w.Cursor()
			execSQL(t, openDirect(t, s.Path()), sql)
			for range 2 {
				if _, err := nextError(t, w); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
					t.Fatalf("%v, expected ErrWatchClosed and ErrCompacted", err)
				}
			}
			resumed, err := s.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", cursor)
			if err == nil {
				_, err = nextError(t, resumed)
				resumed.Close()
			}
			if !errors.Is(err, storage.ErrCompacted) {
				t.Errorf("resumed: %v, expected ErrCompacted", err)
			}
		})
	}
}

// A row that is missing after the position is noticed too.
func TestGapInHistory(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	w := fixture.WatchChanges(t, s)
	a := fixture.Write(t, s, resource("a", 1))
	wantUpsert(t, w, a)
	cursor := w.Cursor()
	fixture.Write(t, s, resource("b", 1))
	fixture.Write(t, s, resource("c", 1))
	execSQL(t, openDirect(t, s.Path()), "DELETE FROM log WHERE seq = 2")
	resumed, err := s.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer resumed.Close()
	if ev, err := nextError(t, resumed); !errors.Is(err, storage.ErrCompacted) {
		t.Fatalf("%v, %v; expected ErrCompacted", ev, err)
	}
}

// nextError is Next, within the time that something may take.
func nextError(t testing.TB, w storage.Watch) (*resourcepb.WatchEvent, error) {
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Timeout)
	defer cancel()
	return w.Next(ctx)
}

// A row that cannot be decoded ends the watches: leaving it out would be a gap that nobody hears of.
func TestDamagedRow(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	w := fixture.WatchChanges(t, s)
	execSQL(t, openDirect(t, s.Path()), "INSERT INTO log (seq, tag, written, key, data) VALUES (1, 1, 0, x'6700', x'ff')")
	if _, err := nextError(t, w); !errors.Is(err, storage.ErrWatchClosed) {
		t.Fatalf("%v, expected ErrWatchClosed", err)
	}
}

// logBytes is how many bytes of resources the log holds.
func logBytes(t testing.TB, s *Backend) (bytes int64) {
	t.Helper()
	c, err := s.handle.readers.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.handle.readers.give(c)
	stmt, _, err := c.db.Prepare("SELECT total(length(data)) FROM log")
	if err != nil {
		t.Fatal(err)
	}
	if stmt.Step() {
		bytes = stmt.ColumnInt64(0)
	}
	if err := errors.Join(stmt.Err(), stmt.Close()); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// The log is bounded in bytes, also where few and young changes make them: those of two processes alike, and those from before
// one was opened. A watch that keeps up sees every change.
func TestRetentionInBytes(t *testing.T) {
	t.Parallel()
	const size, bound = 512 << 10, 32 << 20
	path := newPath(t)
	// Without the bound first, as an older program would leave the log.
	s := open(t, path, nil)
	w := fixture.WatchChanges(t, s)
	early := w.Cursor()
	large := func(res *resourcepb.Resource) *resourcepb.Resource {
		res.Data.Value = bytes.Repeat([]byte{1}, size)
		res.Data.TypeUrl = "example.com/Large"
		return res
	}
	grow := func(s *Backend, name string, times int) {
		t.Helper()
		res := large(resource(name, 0))
		for range times {
			stored := fixture.Write(t, s, res)
			wantUpsert(t, w, stored)
			res.Version = stored.Version
		}
	}
	grow(s, "a", 100)
	if got := logBytes(t, s); got < 100*size {
		t.Fatalf("the log has %d bytes", got)
	}
	one, two := open(t, path, &Options{RetentionBytes: bound, minRetention: 1}), open(t, path, &Options{RetentionBytes: bound, minRetention: 1})
	for round := range 4 {
		grow(one, fmt.Sprint("one-", round), 20)
		grow(two, fmt.Sprint("two-", round), 20)
	}
	// Either process looks after a quarter of the bound at the latest.
	if got := logBytes(t, one); got > bound+2*bound/4+2*sampleEveryByte || got < bound/2 {
		t.Errorf("the log has %d bytes of resources, the bound is %d", got, bound)
	}
	resumed, err := one.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", early)
	if err == nil {
		_, err = nextError(t, resumed)
		resumed.Close()
	}
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a cursor from before the oldest row: %v, expected ErrCompacted", err)
	}
	late := w.Cursor()
	resumed, err = two.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", late)
	if err != nil {
		t.Fatal(err)
	}
	defer resumed.Close()
	wantUpsert(t, resumed, fixture.Write(t, two, resource("new", 0)))
}

// However few bytes are to be kept, a watch that keeps up is not cut off: what a few batches may have brought is there.
func TestRetentionKeepsBatches(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), &Options{RetentionBytes: 1, minRetention: 1})
	cursor := fixture.WatchChanges(t, s).Cursor()
	var want []*resourcepb.Resource
	for i := range batchBytes >> 19 {
		res := resource(fmt.Sprint(i), 0)
		res.Data.Value = make([]byte, 512<<10)
		want = append(want, fixture.Write(t, s, res))
	}
	w, err := s.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, res := range want {
		wantUpsert(t, w, res)
	}
}

// Of a row of the log whose key cannot be read nobody knows which watches want it: it ends them all, at once, and who lists again
// goes on.
func TestUnreadableKeyInLog(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, nil)
	fixture.Write(t, s, resource("a", 1))
	w := fixture.WatchChanges(t, s)
	cursor := w.Cursor()
	db, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Exec("INSERT INTO log (seq, tag, written, key, data) SELECT max(seq) + 1, 4711, max(written), x'6100', x'00' FROM log"); err != nil {
		t.Fatal(err)
	}
	resumed, err := s.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Timeout)
	defer cancel()
	for name, w := range map[string]storage.Watch{"open": w, "resumed": resumed} {
		if ev, err := w.Next(ctx); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("the watch that was %s: %v, %v; expected ErrWatchClosed with ErrCompacted", name, ev, err)
		}
	}
	fresh := fixture.WatchChanges(t, s)
	wantUpsert(t, fresh, fixture.Write(t, s, resource("b", 2)))
}
