package sqlite

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The tables of version 1, and its statements for writes and pruning.
const (
	oldSchema = `
CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 1), store BLOB NOT NULL, version INTEGER NOT NULL, fence TEXT NOT NULL) STRICT;
CREATE TABLE resources (key BLOB PRIMARY KEY, seq INTEGER NOT NULL, tag INTEGER NOT NULL, uid TEXT NOT NULL, group_version TEXT NOT NULL,
	owner BLOB, data BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX resources_by_owner ON resources (owner) WHERE owner IS NOT NULL;
CREATE TABLE log (seq INTEGER PRIMARY KEY, tag INTEGER NOT NULL, at INTEGER NOT NULL, gone_seq INTEGER, gone_tag INTEGER,
	key BLOB NOT NULL, data BLOB NOT NULL) STRICT;
PRAGMA application_id = `
	oldReadState = `SELECT fence, seq, tag, at FROM meta LEFT JOIN (SELECT seq, tag, at FROM log ORDER BY seq DESC LIMIT 1)`
	oldInsertLog = `INSERT INTO log (seq, tag, at, key, data) VALUES (?1, ?2, ?3, ?4, ?5)`
	oldPruneLog  = `DELETE FROM log WHERE seq < ?1 AND (seq < ?2 OR at < ?3)`
)

// oldStore is a store written by a program of version 1.
type oldStore struct {
	t    *testing.T
	path string
	db   *sqlite3.Conn
	seq  int64
	live map[string]*resourcepb.Resource
}

func newOldStore(t *testing.T) *oldStore {
	o := &oldStore{t: t, path: newPath(t), live: map[string]*resourcepb.Resource{}}
	o.db = openDirect(t, o.path)
	execSQL(t, o.db, "PRAGMA journal_mode = WAL")
	execSQL(t, o.db, oldSchema+strconv.Itoa(applicationID)+"; INSERT INTO meta VALUES (1, x'000102030405060708090a0b0c0d0e0f', 1, '')")
	return o
}

// tag returns the tag of a row. Pairs of rows have the same tag, like rows of a transaction.
func (o *oldStore) tag(seq int64) int64 { return 1000 + seq/2 }

func (o *oldStore) write(name string, owner *resourcepb.ID) *resourcepb.Resource {
	o.t.Helper()
	res := resource(name, o.seq+1)
	res.Owner = owner
	return o.put(res)
}

func (o *oldStore) put(res *resourcepb.Resource) *resourcepb.Resource {
	o.t.Helper()
	o.seq++
	data, err := codec.Encode(res)
	if err != nil {
		o.t.Fatal(err)
	}
	res.Version = position{o.seq, o.tag(o.seq)}.version()
	by := "NULL"
	if res.Owner != nil {
		by = sqlite3.Quote(ownerBytes(res.Owner))
	}
	execSQL(o.t, o.db, fmt.Sprintf(`INSERT OR REPLACE INTO resources VALUES (%[1]s, %[2]d, %[3]d, 'uid', 'v1', %[5]s, %[4]s);
		INSERT INTO log VALUES (%[2]d, %[3]d, %[2]d, NULL, NULL, %[1]s, %[4]s)`,
		sqlite3.Quote(key.Of(res.Id).Bytes()), o.seq, o.tag(o.seq), sqlite3.Quote(data), by))
	o.live[res.Id.Name] = res
	return res
}

func (o *oldStore) remove(name string) {
	o.t.Helper()
	o.seq++
	k := sqlite3.Quote(key.Of(o.live[name].Id).Bytes())
	execSQL(o.t, o.db, fmt.Sprintf(`INSERT INTO log SELECT %d, %d, %d, seq, tag, key, data FROM resources WHERE key = %s;
		DELETE FROM resources WHERE key = %[4]s`, o.seq, o.tag(o.seq), o.seq, k))
	delete(o.live, name)
}

// fill makes changes of every kind and prunes the first rows, including writes of stored resources.
func (o *oldStore) fill() {
	o.write("still", nil)
	o.write("owner", nil)
	o.write("changed", o.live["owner"].Id)
	o.write("deleted", nil)
	o.write("hot", nil)
	execSQL(o.t, o.db, "DELETE FROM log WHERE seq < 6")
	for range 70 {
		o.write("hot", nil)
	}
	o.remove("deleted")
	o.write("changed", o.live["owner"].Id)
	o.write("brief", nil)
	o.remove("brief")
	o.write("brief", nil)
	o.remove("brief")
	o.write("brief", nil)
	o.write("last", nil)
}

func (o *oldStore) check(s *Backend) {
	o.t.Helper()
	list, err := s.List(o.t.Context(), storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil || len(list) != len(o.live) {
		o.t.Fatalf("got resources %v, error %v; expected %v", namesOf(list), err, slices.Sorted(maps.Keys(o.live)))
	}
	for _, res := range list {
		if want := o.live[res.Id.Name]; res.Version != want.Version || number(o.t, res) != number(o.t, want) {
			o.t.Errorf("got resource %v, expected %v", res, want)
		}
	}
	if children, err := s.OwnerReferences(o.t.Context(), o.live["owner"].Id); err != nil || len(children) != 1 {
		o.t.Errorf("the owner references are %v, error %v; expected one", children, err)
	}
	checkColumns(o.t, s)
}

// checkColumns checks that no row contradicts its resource.
func checkColumns(t *testing.T, s *Backend) {
	t.Helper()
	if wrong, last, err := s.handle.CheckColumns(t.Context(), nil, 1000); err != nil || last == nil || len(wrong) > 0 {
		t.Errorf("rows with wrong columns: %v, error %v; the last row is %q", wrong, err, last)
	}
}

// Opening a store of version 1 upgrades it. Its versions and cursors stay valid, and it can be read as of the upgrade
// and later.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	o := newOldStore(t)
	o.fill()
	s := open(t, o.path, nil)
	o.check(s)
	if s.handle.id != (cursor.StoreID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
		t.Error("the upgrade changed the id of the store")
	}
	oldest, newest, err := s.handle.Revisions(t.Context())
	if err != nil || oldest != o.seq+1 || newest != o.seq+1 {
		t.Errorf("got revisions %d to %d, error %v; expected only %d", oldest, newest, err, o.seq+1)
	}
	for seq, wanted := range map[int64]int{0: -1, 1: -1, 5: -1, 6: int(o.seq) - 6, o.seq - 3: 3, o.seq: 0} {
		from := position{seq, o.tag(seq)}
		if seq == 0 {
			from = position{}
		}
		events, end, _, err := s.handle.source.page(t.Context(), from, nil, 1000)
		if wanted < 0 {
			if !errors.Is(err, storage.ErrCompacted) {
				t.Errorf("from row %d: got error %v, expected ErrCompacted", seq, err)
			}
		} else if err != nil || len(events) != wanted || end.seq != o.seq {
			t.Errorf("from row %d: got %d events up to row %d, error %v; expected %d", seq, len(events), end.seq, err, wanted)
		}
	}
	at, err := s.handle.PositionAt(t.Context(), newest)
	if err != nil {
		t.Fatal(err)
	}
	then, err := readAt(t, s, &at, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, res := range o.live {
		for range 3 {
			res = fixture.Write(t, s, res)
		}
		if name != "still" {
			fixture.Remove(t, s, res)
		}
	}
	if again, err := readAt(t, open(t, o.path, nil), &at, 2, nil); err != nil || !maps.Equal(then, again) || len(then) != len(o.live) {
		t.Errorf("the content at the upgrade was %v, later reads return %v, error %v", then, again, err)
	}
	if err := s.handle.Compact(t.Context(), o.seq+1+int64(len(o.live))*4-1); err != nil {
		t.Fatal(err)
	}
	// The row at the horizon, the newest row of each resource stored there, and a deletion at the beginning of version
	// 2 may remain.
	if length := queryInt(t, o.db, countRows); length > 4 {
		t.Errorf("the log has %d rows, expected at most 4", length)
	}
	checkColumns(t, s)
}

// The chains of an upgraded store match its old log.
func TestChainsAfterUpgrade(t *testing.T) {
	t.Parallel()
	o := newOldStore(t)
	o.fill()
	s := open(t, o.path, nil)
	c, err := s.handle.readers.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.handle.readers.give(c)
	for above, want := range map[int64]int64{6: 6, 7: 7, 36: 36, 37: 37, 38: 38, 74: 74} {
		if got, err := c.rowAt(75, above); got != want || err != nil {
			t.Errorf("the hot key at row %d has row %d, error %v; expected %d", above, got, err, want)
		}
	}
}

// An interrupted upgrade leaves the store unchanged.
func TestInterruptedUpgrade(t *testing.T) {
	t.Parallel()
	for steps := range 5 {
		o := newOldStore(t)
		o.fill()
		c, err := connect(t.Context(), o.path, "", role{cache: 16, busy: fixture.Timeout})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.exec("begin-immediate"); err != nil {
			t.Fatal(err)
		}
		for _, step := range c.upgrades(meta{version: 1})[:steps] {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
		execSQL(t, o.db, oldReadState)
		var openers sync.WaitGroup
		for range 4 {
			openers.Go(func() {
				s, err := New(t.Context(), o.path, nil)
				if err == nil {
					err = s.Close()
				}
				if err != nil {
					t.Errorf("open after %d steps of an upgrade: %v", steps, err)
				}
			})
		}
		openers.Wait()
		o.check(open(t, o.path, nil))
	}
}

// After the upgrade, an open handle of a program of version 1 can neither write nor prune, and that program cannot open the store
// again.
func TestUpgradeStopsOlderPrograms(t *testing.T) {
	t.Parallel()
	o := newOldStore(t)
	o.fill()
	statements := map[string]*sqlite3.Stmt{}
	for _, text := range []string{oldReadState, oldInsertLog, oldPruneLog} {
		s, _, err := o.db.Prepare(text)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		statements[text] = s
	}
	o.check(open(t, o.path, nil))
	for text, s := range statements {
		if s.Step(); s.Err() == nil {
			t.Errorf("%s succeeded, expected an error", text)
		}
	}
	if version := queryInt(t, o.db, readVersion); version != 2 {
		t.Errorf("the store has version %d, expected 2", version)
	}
}
