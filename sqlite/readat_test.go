package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	past "github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// snapshotAt is the content of a store at a row of the log: for each name its version and numbers.
type snapshotAt map[string]string

func describe(v *driver.Version) string {
	return fmt.Sprintf("%s created %d modified %d writes %d", v.Version, v.CreateRevision, v.ModRevision, v.Writes)
}

// readAt reads the resources stored at a position, in pages of that limit.
func readAt(t testing.TB, s *Backend, at *position, limit int, filter *driver.Filter) (snapshotAt, error) {
	t.Helper()
	got := snapshotAt{}
	q := driver.HistoryQuery[position]{At: at, Limit: limit, Filter: filter}
	for last := ""; ; {
		past, err := s.handle.ReadAt(t.Context(), &q, func(v *driver.Version) error {
			if string(v.Key) <= last {
				t.Errorf("key %q follows %q", v.Key, last)
			}
			last = string(v.Key)
			k, err := key.Parse(v.Key)
			if err != nil {
				return err
			}
			res, err := driver.Decode(k, v.Data, string(v.Version))
			if err != nil {
				return err
			}
			got[k.Name] = fmt.Sprint(describe(v), " is ", number(t, res))
			return nil
		})
		if err != nil {
			return nil, err
		}
		if !past.More {
			return got, nil
		}
		q.At, q.From = &past.At, append([]byte(last), 0)
	}
}

// changeModel changes a few keys and records the content of the store after each change.
type changeModel struct {
	store     *Backend
	live      map[string]*storage.Op // the last write of each stored resource
	now       snapshotAt
	positions []position
	states    []snapshotAt
	random    *rand.Rand
}

func newChangeModel(t testing.TB, s *Backend) *changeModel {
	return &changeModel{
		store: s, live: map[string]*storage.Op{}, now: snapshotAt{}, positions: []position{{}}, states: []snapshotAt{{}},
		random: rand.New(rand.NewPCG(uint64(len(t.Name())), 1)),
	}
}

func (c *changeModel) change(t testing.TB, name string, remove bool) {
	t.Helper()
	n := int64(len(c.positions))
	old := c.live[name]
	if remove {
		if old == nil {
			return
		}
		m := []driver.Mutation{{Verb: driver.Delete, Key: key.Of(old.Write.Id), Uid: "uid", Version: old.Write.Version}}
		if err := c.store.handle.Apply(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if m[0].Revision != n+1 {
			t.Fatalf("the deletion has revision %d, expected %d", m[0].Revision, n+1)
		}
		delete(c.live, name)
		delete(c.now, name)
		at, err := c.store.handle.PositionAt(t.Context(), n+1)
		if err != nil {
			t.Fatal(err)
		}
		c.positions = append(c.positions, at)
	} else {
		res := resource(name, n)
		created, writes := n+1, int64(1)
		if old != nil {
			res.Version = old.Write.Version
			if _, err := fmt.Sscanf(strings.SplitN(c.now[name], " ", 2)[1], "created %d modified", &created); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Sscanf(c.now[name][strings.Index(c.now[name], "writes"):], "writes %d", &writes); err != nil {
				t.Fatal(err)
			}
			writes++
		}
		stored := fixture.Write(t, c.store, res)
		c.live[name] = &storage.Op{Write: stored}
		v := driver.Version{Version: []byte(stored.Version), CreateRevision: created, ModRevision: n + 1, Writes: writes}
		c.now[name] = fmt.Sprint(describe(&v), " is ", n)
		at, _ := parseVersion(stored.Version)
		c.positions = append(c.positions, at)
	}
	c.states = append(c.states, maps.Clone(c.now))
}

// The store can be read as of each change from the horizon on, in pages of any size and in any handle, also after the
// horizon moved and earlier rows were pruned. Earlier revisions are ErrCompacted and later ones ErrFutureRevision.
func TestReadAtEveryRevision(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	c := newChangeModel(t, withoutSync(t, open(t, path, nil)))
	other := open(t, path, nil)
	check := func(from int) {
		t.Helper()
		oldest, newest, err := other.handle.Revisions(t.Context())
		if err != nil || oldest != int64(from)+1 || newest != int64(len(c.positions)) {
			t.Fatalf("got revisions %d to %d, error %v; expected %d to %d", oldest, newest, err, from+1, len(c.positions))
		}
		for n, at := range c.positions {
			_, err := other.handle.PositionAt(t.Context(), int64(n)+1)
			got, err2 := readAt(t, other, &at, 1+n%5, nil)
			if n < from {
				if !errors.Is(err, storage.ErrCompacted) || !errors.Is(err2, storage.ErrCompacted) {
					t.Fatalf("at compacted row %d: got errors %v and %v, expected ErrCompacted", n, err, err2)
				}
				continue
			}
			if err != nil || err2 != nil {
				t.Fatalf("at row %d: got errors %v and %v", n, err, err2)
			}
			if !maps.Equal(got, c.states[n]) {
				t.Fatalf("at row %d the store had %v, expected %v", n, got, c.states[n])
			}
		}
		if _, err := other.handle.PositionAt(t.Context(), int64(len(c.positions))+1); !errors.Is(err, storage.ErrFutureRevision) {
			t.Errorf("the next revision: got error %v, expected ErrFutureRevision", err)
		}
	}
	check(0)
	horizon := 0
	for range 3 {
		for range 100 {
			c.change(t, fmt.Sprint("name-", c.random.IntN(12)), c.random.IntN(3) == 0)
		}
		check(horizon)
		horizon = len(c.positions) - 60
		if err := c.store.handle.Compact(t.Context(), int64(horizon)+1); err != nil {
			t.Fatal(err)
		}
		if err := other.handle.Compact(t.Context(), int64(horizon)); err != nil { // already compacted
			t.Fatal(err)
		}
		check(horizon)
		checkLogLength(t, c.store, len(c.states[horizon])+len(c.positions)-1-horizon)
		checkTables(t, path)
	}
}

// checkLogLength checks that the log has few more rows than it needs.
func checkLogLength(t testing.TB, s *Backend, rows int) {
	t.Helper()
	if length := queryInt(t, openDirect(t, s.Path()), countRows); length < int64(rows)-1 || length > int64(rows)+2 {
		t.Errorf("the log has %d rows, expected about %d", length, rows)
	}
}

// The skip pointers of a chain make the lookup of a version short, even with a hundred thousand later versions.
func TestChainLookupIsShort(t *testing.T) {
	t.Parallel()
	rows := map[int64][2]int64{}
	var l chainEntry
	const length = 100_000
	for seq := int64(1); seq <= length; seq++ {
		next, jump := l.next(seq, seq)
		rows[seq] = [2]int64{l.seq, jump}
		l = next
	}
	if l.writes != length || l.creation != 1 {
		t.Fatalf("the chain ends with entry %+v", l)
	}
	for _, above := range []int64{0, 1, 31, 32, 33, 1023, 1024, 1025, 2048, 50_000, 98_303, 99_998, 99_999} {
		steps := 0
		at := int64(length)
		for at > above {
			steps++
			if row := rows[at]; row[1] > above {
				at = row[1]
			} else {
				at = row[0]
			}
		}
		if at != above || steps > 300 {
			t.Errorf("the lookup above row %d ended at row %d after %d steps", above, at, steps)
		}
	}
}

// The chain of this resource is long enough for both kinds of skip pointers.
func TestHotKey(t *testing.T) {
	t.Parallel()
	s := withoutSync(t, open(t, newPath(t), nil))
	res := resource("hot", 0)
	const writes = 2*leapEvery + 3*stepEvery + 5
	versions := []string{""}
	for n := range int64(writes) {
		res.Data = resource("hot", n+1).Data
		res.Version = fixture.Write(t, s, res).Version
		versions = append(versions, res.Version)
	}
	for n := 1; n <= writes; n += 7 {
		at, err := s.handle.PositionAt(t.Context(), int64(n)+1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAt(t, s, &at, 0, nil)
		want := fmt.Sprintf("%s created 2 modified %d writes %d is %d", versions[n], n+1, n, n)
		if err != nil || got["hot"] != want {
			t.Fatalf("at row %d the resource was %q, error %v; expected %q", n, got["hot"], err, want)
		}
	}
}

// Before returns the versions before each change, as far as history goes back.
func TestBefore(t *testing.T) {
	t.Parallel()
	c := newChangeModel(t, open(t, newPath(t), nil))
	for range 100 {
		c.change(t, fmt.Sprint("name-", c.random.IntN(4)), c.random.IntN(3) == 0)
	}
	const horizon = 40
	if err := c.store.handle.Compact(t.Context(), horizon+1); err != nil {
		t.Fatal(err)
	}
	events, end, _, err := c.store.handle.source.page(t.Context(), c.positions[horizon], nil, 1000)
	if err != nil || end != c.positions[len(c.positions)-1] {
		t.Fatal(end, err)
	}
	versions, err := c.store.handle.Before(t.Context(), events)
	if err != nil {
		t.Fatal(err)
	}
	for i, ev := range events {
		before, got := c.states[ev.At.seq-1][ev.Key.Name], ""
		if versions[i] != nil {
			got = describe(versions[i])
		}
		if !strings.HasPrefix(before, got) || (got == "") != (before == "") {
			t.Errorf("the version before row %d is %q, expected %q", ev.At.seq, got, before)
		}
		now := fmt.Sprintf("created %d modified %d writes %d", ev.CreateRevision, ev.Revision, ev.Writes)
		if after := c.states[ev.At.seq][ev.Key.Name]; !ev.Delete && !strings.Contains(after, now) {
			t.Errorf("row %d has %q, expected %q", ev.At.seq, now, after)
		}
	}
	for name, ev := range map[string]*event{
		"a compacted row":      {Key: events[0].Key, At: c.positions[horizon]},
		"a row of another log": {Key: events[0].Key, At: position{horizon + 10, 1}},
		"a missing row":        {Key: events[0].Key, At: position{100_000, 1}},
	} {
		if _, err := c.store.handle.Before(t.Context(), []*event{ev}); !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("before %s: got error %v, expected ErrCompacted", name, err)
		}
	}
}

// Positions that this log never had are refused, whatever their number.
func TestForeignPositions(t *testing.T) {
	t.Parallel()
	c := newChangeModel(t, open(t, newPath(t), nil))
	for range 20 {
		c.change(t, "a", false)
	}
	if err := c.store.handle.Compact(t.Context(), 11); err != nil {
		t.Fatal(err)
	}
	for _, at := range []position{{}, {5, c.positions[5].tag}, {10, 1}, {15, c.positions[14].tag}, {20, 0}, {21, 1}, {1 << 62, 1}} {
		if got, err := readAt(t, c.store, &at, 1, nil); !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("at position %v: got %v, error %v, expected ErrCompacted", at, got, err)
		}
	}
}

// A sparse filter needs few steps and returns the same resources as a check of each key.
func TestSparseFilters(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	var ops []storage.Op
	const partitions, others = 10, 60
	for p := range partitions {
		for n := range others {
			for _, name := range []string{"a", "b"} {
				res := resource(fmt.Sprint(name, "-", p, "-", n), 1)
				res.Id.Tenancy.Partition, res.Id.Tenancy.Namespace = fmt.Sprint("p", p), fmt.Sprint("n", n)
				ops = append(ops, storage.Op{Write: res})
			}
		}
	}
	for chunk := range slices.Chunk(ops, maxOps) {
		results, err := s.Commit(t.Context(), chunk)
		if err != nil {
			t.Fatal(err)
		}
		for i := range results {
			chunk[i].Write = results[i]
		}
	}
	before, err := s.handle.PositionAt(t.Context(), int64(len(ops))+1)
	if err != nil {
		t.Fatal(err)
	}
	deleted := ops[:len(ops)/2]
	for chunk := range slices.Chunk(deleted, maxOps) {
		removals := make([]storage.Op, len(chunk))
		for i := range chunk {
			removals[i] = storage.Op{Delete: chunk[i].Write.Id, Version: chunk[i].Write.Version}
		}
		if _, err := s.Commit(t.Context(), removals); err != nil {
			t.Fatal(err)
		}
	}
	const all = storage.Wildcard
	for _, f := range []driver.Filter{
		{Group: "group", Kind: "Kind", Partition: all, Namespace: "n7"},
		{Group: all, Kind: all, Partition: all, Namespace: "n0", NamePrefix: "b"},
		{Group: "group", Kind: all, Partition: "p3", Namespace: all, NamePrefix: "a"},
		{Group: "group", Kind: "Kind", Partition: all, Namespace: all, NamePrefix: "none"},
		{Group: "group", Kind: "Kind", Partition: all, Namespace: all},
	} {
		want := snapshotAt{}
		for i := range ops {
			if k := key.Of(ops[i].Write.Id); f.Match(&k) {
				want[k.Name] = ""
			}
		}
		for _, limit := range []int{0, 3} {
			got, err := readAt(t, s, &before, limit, &f)
			if err != nil || !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
				t.Errorf("filter %+v in pages of %d: got %v, error %v; expected %v", f, limit, got, err, want)
			}
		}
		for i := range deleted {
			delete(want, deleted[i].Write.Id.Name)
		}
		got, err := readAt(t, s, nil, 0, &f)
		if err != nil || !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
			t.Errorf("filter %+v at present: got %v, error %v; expected %v", f, got, err, want)
		}
		past, err := s.handle.ReadAt(t.Context(), &driver.HistoryQuery[position]{Filter: &f, Limit: 1, Count: true, KeysOnly: true}, func(*driver.Version) error { return nil })
		if err != nil || past.Count != int64(len(want)) || past.More != (len(want) > 1) {
			t.Errorf("filter %+v: the counting scan returned %+v, error %v; expected %d", f, past, err, len(want))
		}
	}
	// Each partition has one matching namespace among many.
	c, err := s.handle.readers.take(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer s.handle.readers.give(c)
	w, err := c.iterate("list-resources", nil, nil, &driver.Filter{Group: "group", Kind: "Kind", Partition: all, Namespace: "n7"})
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more && err == nil; {
		more, err = w.next()
	}
	if err := errors.Join(err, w.close()); err != nil {
		t.Fatal(err)
	}
	if limit := partitions * (maxMismatches + 4); w.steps > limit {
		t.Errorf("took %d steps for %d partitions, expected at most %d", w.steps, partitions, limit)
	}
}

// Watches cannot continue from before the horizon, even if all rows from there on happen to exist, as newest rows of
// resources.
func TestHistoryBeforeHorizon(t *testing.T) {
	t.Parallel()
	c := newChangeModel(t, open(t, newPath(t), nil))
	for i := range 6 {
		c.change(t, fmt.Sprint(i), false)
	}
	if err := c.store.handle.Compact(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	for seq, at := range c.positions {
		events, _, _, err := c.store.handle.source.page(t.Context(), at, nil, 100)
		if seq < 3 && !errors.Is(err, storage.ErrCompacted) || seq >= 3 && (err != nil || len(events) != 6-seq) {
			t.Errorf("from row %d: got %d events, error %v", seq, len(events), err)
		}
	}
}

// A scan of keys ends at a number of bytes, like a scan of resources.
func TestKeyPagesAreBounded(t *testing.T) {
	t.Parallel()
	s := withoutSync(t, open(t, newPath(t), nil))
	const keys = 7_000
	for i := 0; i < keys; {
		var ops []storage.Op
		for ; i < keys && len(ops) < s.MaxOps(); i++ {
			ops = append(ops, storage.Op{Write: resource(fmt.Sprintf("%05d", i), int64(i))})
		}
		if _, err := s.Commit(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	}
	h, _ := storage.As[past.Historian](storage.Backend(s))
	scan, err := h.Scan(t.Context(), past.Range{}, past.ScanOptions{KeysOnly: true, Count: true})
	if err != nil || !scan.More || scan.Count != keys || len(scan.Records) == 0 {
		t.Errorf("got %d of %d records, more is %v, error %v", len(scan.Records), scan.Count, scan.More, err)
	}
}
