package sqlite

import (
	"errors"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
)

// txn is a write transaction in progress.
type txn struct {
	conn       *conn
	chains     *chainCache
	storeState               // now
	before     position      // newest row of the log at the start of the transaction
	callEnd    int64         // last row of the request that is being applied
	tag        int64         // tag of all rows of the transaction; readers recognize a commit by it
	now        int64         // start time in ms
	at         int64         // time of the rows in ms, never before the time of an older row
	note       *driver.Guard // note that a guard read last, with its current revision
	bytes      int64         // bytes added to the log, without deletions
}

// storeState is what a writer needs at the start of its transaction.
type storeState struct {
	fence   string
	bounds  historyBounds
	last    position // newest row of the log
	written int64    // its time in ms
}

// storeState reads the state of the connection's transaction.
func (c *conn) storeState() (s storeState, err error) {
	_, err = c.queryRow("transaction-state", func(row *sqlite3.Stmt) {
		s.fence = row.ColumnText(0)
		s.bounds = historyBounds{row.ColumnInt64(1), row.ColumnInt64(2), row.ColumnInt64(3)}
		s.last = position{row.ColumnInt64(4), row.ColumnInt64(5)}
		s.written = row.ColumnInt64(6)
	})
	return s, err
}

func newTxn(c *conn, state storeState, known *chainCache) txn {
	now := time.Now().UnixMilli()
	t := txn{conn: c, chains: known, storeState: state, before: state.last, now: now, at: max(now, state.written)}
	for t.tag == 0 || t.tag == t.last.tag {
		t.tag = randomTag()
	}
	return t
}

// stateAfter returns the state after the commit of the transaction.
func (t *txn) stateAfter() storeState {
	s := t.storeState
	if t.last != t.before {
		s.written = t.at
	}
	return s
}

// apply executes a request. refused is the error of a request that changed nothing. err means that the whole
// transaction must be rolled back.
func (t *txn) apply(r *request) (refused, err error) {
	if t.fence != "" {
		if refused := driver.DecodeFence(t.fence).Refusal(r.guard); refused != nil {
			return refused, nil
		}
	}
	if refused, err := t.checkGuard(r.guard); refused != nil || err != nil {
		return refused, err
	}
	t.callEnd = t.last.seq + 1
	if len(r.mutations) == 1 {
		refused, err := t.change(&r.mutations[0])
		return operationError(0, refused), err
	}
	// Decide everything before the first change, so that nothing needs to be undone.
	t.callEnd = t.last.seq
	for i := range r.mutations {
		changes, refused, err := t.decide(&r.mutations[i])
		if refused != nil || err != nil {
			return operationError(i, refused), err
		}
		if changes {
			t.callEnd++
		}
	}
	for i := range r.mutations {
		refused, err := t.change(&r.mutations[i])
		if err != nil {
			return nil, err
		}
		if refused != nil {
			return nil, fmt.Errorf("an operation was refused after it was accepted: %w", refused)
		}
	}
	if t.last.seq != t.callEnd {
		return nil, fmt.Errorf("the newest row is %d after a request that ends at row %d", t.last.seq, t.callEnd)
	}
	return nil, nil
}

// operationError returns the error of a request whose operation i is refused.
func operationError(i int, refused error) error {
	if refused == nil {
		return nil
	}
	return &storage.OpError{Index: i, Err: refused}
}

func (t *txn) decide(c *mutation) (changes bool, refused, err error) {
	s, err := t.decisionState(c.key)
	if err != nil {
		return false, nil, err
	}
	changes, refused = c.Decide(s)
	return changes, refused, nil
}

func (t *txn) change(c *mutation) (refused, err error) {
	c.at = position{} // from a failed attempt
	switch c.Verb {
	case driver.Write:
		return t.write(c)
	case driver.Delete:
		return t.remove(c)
	default:
		_, refused, err = t.decide(c)
		return refused, err
	}
}

// write runs the statement that succeeds if the caller's version is current. It reads the stored state only after that.
func (t *txn) write(c *mutation) (refused, err error) {
	next := position{t.last.seq + 1, t.tag}
	given, valid := parseVersion(c.Version)
	var old chainEntry
	done := false
	switch {
	case c.Version == "":
		done, err = t.put("insert-resource", next, given, chainEntry{}, c)
	case valid:
		if old, err = t.entryOf(c.key, given); err == nil && old.seq != 0 {
			done, err = t.put("update-resource", next, given, old, c)
		}
	}
	if err != nil {
		return nil, err
	}
	if !done {
		if _, refused, err := t.decide(c); refused != nil || err != nil {
			return refused, err
		}
		// Only the owner or the group version differs.
		if done, err = t.put("replace-resource", next, given, old, c); err != nil {
			return nil, err
		}
		if !done {
			return nil, errors.New("the stored row could not be replaced")
		}
	}
	l, jump := old.next(next.seq, t.callEnd)
	err = t.conn.exec("log-write", next.seq, next.tag, t.at, t.endColumn(next), l.creation, l.writes, old.seq, jump, c.key, c.data)
	t.chains.replace(given, next, l)
	t.last, c.at, c.last, c.creation, c.writes = next, next, t.callEnd, l.creation, l.writes
	t.bytes += int64(len(c.data))
	return nil, err
}

// put runs the statement insert, update or replace. It reports whether the statement changed a row. old is the chain
// entry of the replaced row.
func (t *txn) put(statement string, next, given position, old chainEntry, c *mutation) (done bool, err error) {
	var owner any // NULL without one
	if c.owner != nil {
		owner = c.owner
	}
	params := []any{next.seq, next.tag, c.groupVersion, c.data, c.key, c.Uid, given.seq, given.tag, owner, t.endColumn(next), nil, nil, nil}
	if statement == "insert-resource" {
		params = params[:10]
	} else {
		l, _ := old.next(next.seq, t.callEnd)
		params[10], params[11], params[12] = l.writes, l.step, l.leap
	}
	err = t.conn.exec(statement, params...)
	return err == nil && t.conn.db.Changes() == 1, err
}

// endColumn returns the value of the column last in a row of the present request: 0 in its last row.
func (t *txn) endColumn(row position) int64 {
	if row.seq == t.callEnd {
		return 0
	}
	return t.callEnd
}

// entryOf returns the chain entry of a resource, or a zero entry unless it is stored at that version.
func (t *txn) entryOf(key []byte, at position) (chainEntry, error) {
	if l, ok := t.chains.get(at); ok {
		return l, nil // if the position belongs to another key, the update matches no row
	}
	var l chainEntry
	_, err := t.conn.queryRow("chain-entry", func(s *sqlite3.Stmt) {
		l = chainEntry{at.seq, s.ColumnInt64(0), s.ColumnInt64(1), s.ColumnInt64(2), s.ColumnInt64(3)}
	}, key, at.seq, at.tag)
	return l, err
}

// remove copies the row into the log, records the end of its chain and deletes it.
func (t *txn) remove(c *mutation) (refused, err error) {
	next := position{t.last.seq + 1, t.tag}
	given, valid := parseVersion(c.Version)
	if valid {
		if err := t.conn.exec("log-deletion", next.seq, next.tag, t.at, c.key, c.Uid, given.seq, given.tag, t.endColumn(next)); err != nil {
			return nil, err
		}
	}
	if !valid || t.conn.db.Changes() == 0 {
		_, refused, err = t.decide(c)
		return refused, err
	}
	t.last, c.at, c.last = next, next, t.callEnd
	if err := t.conn.exec("insert-gone", c.key, next.seq); err != nil {
		return nil, err
	}
	return nil, t.conn.exec("delete-resource", c.key)
}

// decisionState returns the stored state that the decision tables need.
func (t *txn) decisionState(key []byte) (driver.Stored, error) {
	var found driver.Stored
	_, err := t.conn.queryRow("stored-version", func(s *sqlite3.Stmt) {
		found = driver.Stored{Exists: true, Uid: s.ColumnText(0), Version: position{s.ColumnInt64(1), s.ColumnInt64(2)}.version()}
	}, key)
	return found, err
}

// find reports whether the log has the row at m.
func (c *conn) find(m position) (bool, error) {
	return c.queryRow("find-row", func(*sqlite3.Stmt) {}, m.seq, m.tag)
}

// mutation is a driver.Mutation prepared for the writer. It copies all it needs from the caller's message, because the
// caller may return and reuse the message before the writer is done.
type mutation struct {
	*driver.Mutation
	key []byte
	// These fields are set for writes only.
	groupVersion string
	owner, data  []byte
	creation     int64 // set by the writer, like the fields below
	writes       int64
	at           position // of the change's row; zero if nothing was changed
	last         int64    // row of the request
}

func newMutation(m *driver.Mutation) (c mutation, err error) {
	c = mutation{Mutation: m, key: m.Key.Bytes()}
	if m.Verb == driver.Write {
		c.groupVersion = m.Resource.GetId().GetType().GetGroupVersion()
		c.owner = ownerBytes(m.Resource.GetOwner())
		c.data, err = codec.Encode(m.Resource)
	}
	return c, err
}

// request is the atomic unit of one caller. The writer owns it from drain until resultCh is closed. A caller that returns
// earlier must not access it again.
type request struct {
	mutations []mutation
	guard     *driver.Guard
	err       error
	resultCh  chan struct{}
	inBatch   bool // guarded by queue.mu
}

func (r *request) size() int {
	n := 0
	for i := range r.mutations {
		n += len(r.mutations[i].data)
	}
	return n
}

// historyBounds are the lower bounds of history as rows of the log: followed <= horizon, pruned <= followed. In a store
// created by this version, followed equals horizon. In an upgraded store, changes can be followed for a while from
// before the horizon.
type historyBounds struct{ followed, horizon, pruned int64 }

// checkGuard returns an error as refused if the guard of a request no longer holds. A batch reads a note once, because
// no other writer can change it during the transaction.
func (t *txn) checkGuard(g *driver.Guard) (refused, err error) {
	if g == nil {
		return nil, nil
	}
	if t.note == nil || t.note.Note != g.Note {
		at, err := t.conn.note(g.Note, nil)
		if err != nil {
			return nil, err
		}
		t.note = &driver.Guard{Note: g.Note, Revision: at}
	}
	if t.note.Revision != g.Revision {
		return g.Superseded(), nil
	}
	return nil, nil
}
