package sqlite

import (
	"errors"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Each transaction begins with the stored state, after successful and failed transactions of the writer and of others. After
// its own commit, the writer does not read the state again.
func TestStateOfNextTransaction(t *testing.T) {
	t.Parallel()
	s, f := openFaulty(t)
	w := newTestWriter(t, s)
	w.log = retention{age: fixture.Timeout, rows: 1 << 40, bytes: 4} // each batch prunes
	direct := openDirect(t, s.Path())
	write := func(name, version string) *request {
		m := &driver.Mutation{Verb: driver.Write, Uid: "u", Version: version}
		return &request{mutations: []mutation{{Mutation: m, key: []byte("g\x00k\x00\x00\x00" + name), data: []byte(name)}}}
	}
	run := func(batch ...*request) error {
		tx, err := w.begin()
		if err != nil {
			t.Fatal(err)
		}
		return w.applyAndCommit(&tx, batch)
	}
	commit := func(batch ...*request) func() {
		return func() {
			t.Helper()
			if err := run(batch...); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustFail := func(want error, batch ...*request) {
		t.Helper()
		if err := run(batch...); !errors.Is(err, want) {
			t.Fatalf("got error %v, expected %v", err, want)
		}
	}
	setFence := func(target *string) func() {
		return func() {
			if err := s.handle.SetFence(t.Context(), target); err != nil {
				t.Fatal(err)
			}
		}
	}
	stateReads := func() int { return w.conn.stmts["transaction-state"].Status(sqlite3.STMTSTATUS_RUN, false) }
	target := "elsewhere"
	refused := write("refused", "")
	for i, step := range []struct {
		name string
		kept bool // the next transaction uses the state without reading it
		do   func()
	}{
		{"a commit", true, commit(write("a", ""))},
		{"another commit", true, commit(write("b", ""), write("c", ""))},
		{"a batch of refused requests", true, commit(write("a", "wrong"))},
		{"a row from the future", false, func() { execSQL(t, direct, "UPDATE log SET written = 1000000000000000") }},
		{"a commit after it", true, commit(write("d", ""))},
		{"a failed statement", false, func() {
			execSQL(t, direct, "CREATE TRIGGER fail BEFORE INSERT ON log WHEN NEW.data = x'62616420' BEGIN SELECT RAISE(ABORT, 'refused'); END")
			mustFail(sqlite3.CONSTRAINT, write("rolled-back", ""), write("bad ", ""))
		}},
		{"a commit after it", true, func() {
			execSQL(t, direct, "DROP TRIGGER fail")
			commit(write("e", ""))()
		}},
		{"a failed prune", false, func() {
			execSQL(t, direct, "CREATE TRIGGER fail BEFORE UPDATE OF pruned ON meta BEGIN SELECT RAISE(ABORT, 'refused'); END")
			mustFail(sqlite3.CONSTRAINT, write("rolled-back", ""))
		}},
		{"a commit after it", true, func() {
			execSQL(t, direct, "DROP TRIGGER fail")
			commit(write("f", ""))()
		}},
		{"a failed sync", false, func() {
			f.failSyncs.Store(1)
			mustFail(errUnknownOutcome, write("lost", ""))
		}},
		{"a commit after it", true, commit(write("g", ""))},
		{"a commit that fails after it took effect", false, func() {
			f.failAfterCommit.Store(1)
			commit(write("h", ""))()
		}},
		{"a commit after it", true, commit(write("i", ""))},
		{"another writer's commit", false, func() { fixture.Write(t, s, resource("other", 1)) }},
		{"a commit after it", true, commit(write("j", ""))},
		{"a fence", false, setFence(&target)},
		{"a batch that the fence refuses", true, commit(refused)},
		{"the end of the fence", false, setFence(nil)},
		{"a commit after it", true, commit(write("k", ""))},
		{"a compaction", false, func() {
			_, newest, err := s.handle.Revisions(t.Context())
			if err == nil {
				err = s.handle.Compact(t.Context(), newest)
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		{"a commit after it", true, commit(write("l", ""))},
	} {
		step.do()
		known, reads := w.known, stateReads()
		tx, err := w.begin()
		if err != nil {
			t.Fatal(err)
		}
		if step.kept && stateReads() != reads {
			t.Errorf("step %d, %s: the next transaction reads the state, which the writer knows", i, step.name)
		}
		if stored, err := w.conn.storeState(); err != nil || tx.storeState != stored {
			t.Errorf("step %d, %s: the next transaction begins with the state %+v, expected %+v, error %v", i, step.name, tx.storeState, stored, err)
		}
		if err := w.conn.endTransaction(); err != nil {
			t.Fatal(err)
		}
		w.known = known
	}
	if state, err := w.conn.storeState(); err != nil || state.bounds.pruned == 0 {
		t.Errorf("the bounds of history are %+v, error %v, expected pruned rows", state.bounds, err)
	}
	if !errors.Is(refused.err, storage.ErrFenced) {
		t.Errorf("got error %v, expected ErrFenced", refused.err)
	}
}
