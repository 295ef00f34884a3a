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

// churn writes at least that many changes and checks that the watch returns them.
func churn(t testing.TB, s *Backend, w storage.Watch, changes int) {
	t.Helper()
	ops := make([]storage.Op, maxOps)
	for i := range ops {
		ops[i].Write = resource(fmt.Sprint("churn-", i), 0)
		if old, err := s.Read(t.Context(), storage.StrongConsistency, ops[i].Write.Id); err == nil {
			ops[i].Write.Version = old.Version
		}
	}
	for written := 0; written < changes; written += len(ops) {
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

// The log is bounded. Older cursors are compacted, younger ones are valid, and a watch that keeps up sees every change.
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
			s := withoutSync(t, open(t, path, &c.options))
			w := fixture.WatchChanges(t, s)
			early := w.Cursor()
			churn(t, s, w, 2*pruneNever)
			if length := queryInt(t, openDirect(t, path), countRows); length > c.bound+pruneEvery+maxOps || length < c.bound {
				t.Errorf("the log has %d rows, expected about %d", length, c.bound)
			}
			resumed, err := s.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", early)
			if err == nil {
				_, err = nextError(t, resumed)
				resumed.Close()
			}
			if !errors.Is(err, storage.ErrCompacted) {
				t.Errorf("a cursor before the oldest row: got error %v, expected ErrCompacted", err)
			}
			// The cursor is also valid in a handle opened later.
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

// A continue token is valid for driver.TokenLifetime, even with the smallest retention. After that its rows are pruned,
// and also if the clock was set back, because the age of the rows is then unknown.
func TestRetentionKeepsTokens(t *testing.T) {
	t.Parallel()
	const minute = int64(time.Minute / time.Millisecond)
	for name, c := range map[string]struct {
		shift     int64 // added to the time of all rows, in ms
		compacted bool
	}{
		"young":                         {-4 * minute, false},
		"old":                           {-6 * minute, true},
		"a clock set back":              {6 * minute, true},
		"a clock corrected by a minute": {minute, false}, // no more than a correction of the clock
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withoutSync(t, open(t, newPath(t), &Options{RetentionRows: 1}))
			fixture.Write(t, s, resource("a", 1))
			fixture.Write(t, s, resource("b", 1))
			token := page(t, s, 1, "").Continue
			w := fixture.WatchChanges(t, s)
			churn(t, s, w, pruneNever+2*maxOps)
			execSQL(t, openDirect(t, s.Path()), fmt.Sprintf("UPDATE log SET written = written + %d", c.shift))
			churn(t, s, w, 2*maxOps)
			rest, err := s.ListPage(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{Continue: token})
			switch {
			case c.compacted && !errors.Is(err, storage.ErrCompacted):
				t.Errorf("the next page has %v, error %v; expected ErrCompacted", namesOf(rest.Resources), err)
			case !c.compacted && (err != nil || fmt.Sprint(namesOf(rest.Resources)) != "[b]"):
				t.Errorf("the next page has %v, error %v; expected [b]", namesOf(rest.Resources), err)
			}
		})
	}
}

// Rows have ascending times even if the clock is set back, because pruning relies on their order.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	res := fixture.Write(t, s, resource("a", 0))
	execSQL(t, openDirect(t, s.Path()), "UPDATE log SET written = 1000000000000000")
	fixture.Write(t, s, fixture.Write(t, s, res)) // a row after one of another connection, and a row after one of its own
	c, err := s.handle.readers.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.handle.readers.give(c)
	state, err := c.storeState()
	if tx := newTxn(c, state, nil); err != nil || tx.at != 1000000000000000 || tx.last.seq != 3 {
		t.Errorf("the next row has time %d after row %d, error %v", tx.at, tx.last.seq, err)
	}
}

// A watch finds a change whose writer died before its notification.
func TestChangeWithoutNotification(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	w := fixture.WatchChanges(t, s)
	insertUnannounced(t, s, "quiet", position{1, 77})
	res := resource("quiet", 1)
	res.Version = position{1, 77}.version()
	wantUpsert(t, w, res)
}

// insertUnannounced writes a resource without a notification.
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

// Watches see the writes of other handles after the lock file is removed.
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
	third := open(t, path, nil) // creates a new lock file
	wantUpsert(t, w, fixture.Write(t, third, resource("third", 1)))
}

func TestUnwatchedLockFile(t *testing.T) {
	t.Parallel()
	b := watchLockFile(filepath.Join(t.TempDir(), "absent"))
	defer b.close()
	if b.watcher != nil || b.await(t.Context(), nil) != signalPoll {
		t.Error("a lock file without a watcher must be polled")
	}
}

// If an older copy of the database replaces the file under a watch, new rows have numbers that the watch has seen. The
// watch must end.
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
					t.Fatalf("got error %v, expected ErrWatchClosed and ErrCompacted", err)
				}
			}
			resumed, err := s.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", cursor)
			if err == nil {
				_, err = nextError(t, resumed)
				resumed.Close()
			}
			if !errors.Is(err, storage.ErrCompacted) {
				t.Errorf("the resumed watch: got error %v, expected ErrCompacted", err)
			}
		})
	}
}

// A watch ends if a row after its position is missing.
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
		t.Fatalf("got event %v, error %v; expected ErrCompacted", ev, err)
	}
}

// nextError returns the next event or error of a watch within the test's timeout.
func nextError(t testing.TB, w storage.Watch) (*resourcepb.WatchEvent, error) {
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Timeout)
	defer cancel()
	return w.Next(ctx)
}

// A row that cannot be decoded ends the watches, because skipping it would be a silent gap.
func TestDamagedRow(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	w := fixture.WatchChanges(t, s)
	execSQL(t, openDirect(t, s.Path()), "INSERT INTO log (seq, tag, written, key, data) VALUES (1, 1, 0, x'6700', x'ff')")
	if _, err := nextError(t, w); !errors.Is(err, storage.ErrWatchClosed) {
		t.Fatalf("got error %v, expected ErrWatchClosed", err)
	}
}

// The log is bounded in bytes, even with few and young changes, including the changes of another process and earlier
// ones. A watch that keeps up sees every change.
func TestRetentionInBytes(t *testing.T) {
	t.Parallel()
	const size, bound = 512 << 10, 32 << 20
	path := newPath(t)
	// Write without the bound first, as an older program would.
	s := withoutSync(t, open(t, path, nil))
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
	grow(s, "a", 70)
	const logBytes = "SELECT sum(length(data)) FROM log"
	if got := queryInt(t, openDirect(t, path), logBytes); got < 70*size {
		t.Fatalf("the log has %d bytes, expected at least 70 resources", got)
	}
	options := &Options{RetentionBytes: bound, minRetention: 1}
	one, two := withoutSync(t, open(t, path, options)), withoutSync(t, open(t, path, options))
	for round := range 4 {
		grow(one, fmt.Sprint("one-", round), 20)
		grow(two, fmt.Sprint("two-", round), 20)
	}
	// Each process checks the bound after writing a quarter of it.
	if got := queryInt(t, openDirect(t, path), logBytes); got > bound+2*bound/4+2*sampleEveryByte || got < bound/2 {
		t.Errorf("the log has %d bytes of resources, expected about %d", got, bound)
	}
	resumed, err := one.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", early)
	if err == nil {
		_, err = nextError(t, resumed)
		resumed.Close()
	}
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a cursor before the oldest row: got error %v, expected ErrCompacted", err)
	}
	late := w.Cursor()
	resumed, err = two.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", late)
	if err != nil {
		t.Fatal(err)
	}
	defer resumed.Close()
	wantUpsert(t, resumed, fixture.Write(t, two, resource("new", 0)))
}

// A watch that keeps up is not cut off even with the smallest bound in bytes, because the newest batches are kept.
func TestRetentionKeepsBatches(t *testing.T) {
	t.Parallel()
	s := withoutSync(t, open(t, newPath(t), &Options{RetentionBytes: 1, minRetention: 1}))
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

// A row whose key is unreadable may match any watch, so it ends them all at once. A new watch continues after it.
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
			t.Errorf("the %s watch: got event %v, error %v; expected ErrWatchClosed with ErrCompacted", name, ev, err)
		}
	}
	fresh := fixture.WatchChanges(t, s)
	wantUpsert(t, fresh, fixture.Write(t, s, resource("b", 2)))
}
