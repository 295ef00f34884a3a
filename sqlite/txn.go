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
	conn   *conn
	chains *chainCache
	fence  string
	bounds historyBounds
	before position      // newest row of the log at the start of the transaction
	last   position      // newest row now
	tag    int64         // tag of all rows of the transaction; readers recognize a commit by it
	now    int64         // start time in ms
	at     int64         // time of the rows in ms, never before the time of an older row
	note   *driver.Guard // note that a guard read last, with its current revision
	bytes  int64         // bytes added to the log, without deletions
}

func newTxn(c *conn, known *chainCache) (txn, error) {
	s, err := c.stmt(state)
	if err != nil {
		return txn{}, err
	}
	now := time.Now().UnixMilli()
	t := txn{conn: c, chains: known, now: now, at: now}
	if s.Step() {
		t.fence = s.ColumnText(0)
		t.bounds = historyBounds{s.ColumnInt64(1), s.ColumnInt64(2), s.ColumnInt64(3)}
		t.last = position{s.ColumnInt64(4), s.ColumnInt64(5)}
		t.at = max(t.at, s.ColumnInt64(6))
	}
	t.before = t.last
	for t.tag == 0 || t.tag == t.last.tag {
		t.tag = randomTag()
	}
	return t, finish(s)
}

// apply executes a request. refused is the error of a request that changed nothing. err means that the whole
// transaction must be rolled back.
func (t *txn) apply(r *request) (refused, err error) {
	if t.fence != "" {
		return driver.FenceError(t.fence), nil
	}
	if refused, err := t.checkGuard(r.guard); refused != nil || err != nil {
		return refused, err
	}
	if len(r.mutations) == 1 {
		refused, err := t.change(&r.mutations[0])
		return operationError(0, refused), err
	}
	// Decide everything before the first change, so that nothing needs to be undone.
	for i := range r.mutations {
		refused, err := t.decide(&r.mutations[i])
		if refused != nil || err != nil {
			return operationError(i, refused), err
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
	return nil, nil
}

// operationError returns the error of a request whose operation i is refused.
func operationError(i int, refused error) error {
	if refused == nil {
		return nil
	}
	return &storage.OpError{Index: i, Err: refused}
}

func (t *txn) decide(c *mutation) (refused, err error) {
	s, err := t.decisionState(c.key)
	if err != nil {
		return nil, err
	}
	_, refused = c.Decide(s)
	return refused, nil
}

func (t *txn) change(c *mutation) (refused, err error) {
	c.at = position{} // from a failed attempt
	switch c.Verb {
	case driver.Write:
		return t.write(c)
	case driver.Delete:
		return t.remove(c)
	default:
		return t.decide(c)
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
		done, err = t.put(insert, next, given, chainEntry{}, c)
	case valid:
		if old, err = t.currentChain(c.key, given); err == nil && old.seq != 0 {
			done, err = t.put(update, next, given, old, c)
		}
	}
	if err != nil {
		return nil, err
	}
	if !done {
		if refused, err := t.decide(c); refused != nil || err != nil {
			return refused, err
		}
		// Only the owner or the group version differs.
		if done, err = t.put(replace, next, given, old, c); err != nil {
			return nil, err
		}
		if !done {
			return nil, errors.New("the stored row could not be replaced")
		}
	}
	l, jump := old.next(next.seq)
	s, err := t.conn.stmt(logWrite)
	if err != nil {
		return nil, err
	}
	err = errors.Join(s.BindInt64(1, next.seq), s.BindInt64(2, next.tag), s.BindInt64(3, t.at), s.BindInt64(4, l.createRevision),
		s.BindInt64(5, l.writes), s.BindInt64(6, old.seq), s.BindInt64(7, jump), s.BindBlob(8, c.key), s.BindBlob(9, c.data))
	if err == nil {
		err = s.Exec()
	}
	t.chains.replace(given, next, l)
	t.last, c.at, c.createRevision, c.writes = next, next, l.createRevision, l.writes
	t.bytes += int64(len(c.data))
	return nil, err
}

// put runs the statement insert, update or replace. It reports whether the statement changed a row. old is the chain
// entry of the replaced row.
func (t *txn) put(q query, next, given position, old chainEntry, c *mutation) (done bool, err error) {
	s, err := t.conn.stmt(q)
	if err != nil {
		return false, err
	}
	err = errors.Join(
		s.BindInt64(1, next.seq), s.BindInt64(2, next.tag), s.BindText(3, c.groupVersion), s.BindBlob(4, c.data),
		s.BindBlob(5, c.key), s.BindText(6, c.Uid), bindOwner(s, 9, c.owner),
	)
	if err == nil && q != insert {
		l, _ := old.next(next.seq)
		err = errors.Join(s.BindInt64(7, given.seq), s.BindInt64(8, given.tag),
			s.BindInt64(10, l.writes), s.BindInt64(11, l.step), s.BindInt64(12, l.leap))
	}
	if err == nil {
		err = s.Exec()
	}
	return err == nil && t.conn.db.Changes() == 1, err
}

// currentChain returns the chain entry of a resource, or a zero entry unless it is stored at that version.
func (t *txn) currentChain(key []byte, at position) (chainEntry, error) {
	if l, ok := t.chains.get(at); ok {
		return l, nil // if the position belongs to another key, the update matches no row
	}
	s, err := t.conn.stmt(linkOf)
	if err != nil {
		return chainEntry{}, err
	}
	if err := errors.Join(s.BindBlob(1, key), s.BindInt64(2, at.seq), s.BindInt64(3, at.tag)); err != nil {
		return chainEntry{}, err
	}
	var l chainEntry
	if s.Step() {
		l = chainEntry{at.seq, s.ColumnInt64(0), s.ColumnInt64(1), s.ColumnInt64(2), s.ColumnInt64(3)}
	}
	return l, finish(s)
}

// remove copies the row into the log, records the end of its chain and deletes it.
func (t *txn) remove(c *mutation) (refused, err error) {
	next := position{t.last.seq + 1, t.tag}
	given, valid := parseVersion(c.Version)
	if valid {
		s, err := t.conn.stmt(logDelete)
		if err != nil {
			return nil, err
		}
		err = errors.Join(s.BindInt64(1, next.seq), s.BindInt64(2, next.tag), s.BindInt64(3, t.at), s.BindBlob(4, c.key),
			s.BindText(5, c.Uid), s.BindInt64(6, given.seq), s.BindInt64(7, given.tag))
		if err == nil {
			err = s.Exec()
		}
		if err != nil {
			return nil, err
		}
	}
	if !valid || t.conn.db.Changes() == 0 {
		return t.decide(c)
	}
	t.last, c.at = next, next
	s, err := t.conn.stmt(deleted)
	if err == nil {
		err = errors.Join(s.BindBlob(1, c.key), s.BindInt64(2, next.seq))
	}
	if err == nil {
		err = s.Exec()
	}
	if err != nil {
		return nil, err
	}
	s, err = t.conn.stmt(remove)
	if err != nil {
		return nil, err
	}
	if err := s.BindBlob(1, c.key); err != nil {
		return nil, err
	}
	return nil, s.Exec()
}

// decisionState returns the stored state that the decision tables need.
func (t *txn) decisionState(key []byte) (driver.Stored, error) {
	s, err := t.conn.stmt(stored)
	if err != nil {
		return driver.Stored{}, err
	}
	if err := s.BindBlob(1, key); err != nil {
		return driver.Stored{}, err
	}
	var found driver.Stored
	if s.Step() {
		found = driver.Stored{Exists: true, Uid: s.ColumnText(0), Version: position{s.ColumnInt64(1), s.ColumnInt64(2)}.version()}
	}
	return found, finish(s)
}

// find reports whether the log has the row at m.
func (c *conn) find(m position) (bool, error) {
	s, err := c.stmt(find)
	if err != nil {
		return false, err
	}
	if err := errors.Join(s.BindInt64(1, m.seq), s.BindInt64(2, m.tag)); err != nil {
		return false, err
	}
	found := s.Step()
	return found, finish(s)
}

// bindOwner binds an owner, or NULL for nil.
func bindOwner(s *sqlite3.Stmt, param int, owner []byte) error {
	if owner == nil {
		return s.BindNull(param)
	}
	return s.BindBlob(param, owner)
}

// mutation is a driver.Mutation prepared for the writer. It copies all it needs from the caller's message, because the
// caller may return and reuse the message before the writer is done.
type mutation struct {
	*driver.Mutation
	key []byte
	// These fields are set for writes only.
	groupVersion   string
	owner, data    []byte
	createRevision int64 // set by the writer, like the fields below
	writes         int64
	at             position // of the change's row; zero if nothing was changed
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

// request is the atomic unit of one caller. The writer owns it from drain until doneCh is closed. A caller that returns
// earlier must not access it again.
type request struct {
	mutations []mutation
	guard     *driver.Guard
	err       error
	doneCh    chan struct{}
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
