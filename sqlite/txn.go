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

// txn is a transaction of the writer's that is under way.
type txn struct {
	conn   *conn
	chains *chainCache
	fence  string
	bounds historyBounds
	before position      // the newest row of the log when the transaction began
	last   position      // the newest row now
	tag    int64         // of all its rows, by which readers know them for one commit
	now    int64         // when it began, in ms
	at     int64         // the time of its rows in ms; never earlier than that of an older row
	note   *driver.Guard // the note that a guard asked about last, as it is
	bytes  int64         // that were added to the log, but for those of deleted resources
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

// apply carries out a request. refused is the caller's: the request was not carried out at all. err means that the whole
// transaction is lost.
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
	// Nothing is changed before everything is decided, so there is nothing to undo.
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
			return nil, fmt.Errorf("an operation that was found possible is not: %w", refused)
		}
	}
	return nil, nil
}

// operationError is the error of a request one of whose changes is refused.
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
	c.at = position{} // an earlier attempt may have failed
	switch c.Verb {
	case driver.Write:
		return t.write(c)
	case driver.Delete:
		return t.remove(c)
	default:
		return t.decide(c)
	}
}

// write tries the statement that is right if the caller is, and only otherwise looks at what is stored.
func (t *txn) write(c *mutation) (refused, err error) {
	next := position{t.last.seq + 1, t.tag}
	given, could := parseVersion(c.Version)
	var old chainEntry
	done := false
	switch {
	case c.Version == "":
		done, err = t.put(insert, next, given, chainEntry{}, c)
	case could:
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
		// Only the owner or the group version was another.
		if done, err = t.put(replace, next, given, old, c); err != nil {
			return nil, err
		}
		if !done {
			return nil, errors.New("a row that may be replaced cannot be")
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

// put runs insert, update or replace and reports whether it has found its row. old is the link of what is replaced.
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

// currentChain returns the currentChain of a resource, none unless it is stored at that version.
func (t *txn) currentChain(key []byte, at position) (chainEntry, error) {
	if l, ok := t.chains.get(at); ok {
		return l, nil // where the key is another one's, no statement will find it
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

// remove copies the row into the log, notes where its chain ends, and deletes it.
func (t *txn) remove(c *mutation) (refused, err error) {
	next := position{t.last.seq + 1, t.tag}
	given, could := parseVersion(c.Version)
	if could {
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
	if !could || t.conn.db.Changes() == 0 {
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

// decisionState returns what the decision tables have to know about a key.
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

// find reports whether the log has a row.
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

// bindOwner binds an owner's bytes, or NULL where there is none.
func bindOwner(s *sqlite3.Stmt, param int, owner []byte) error {
	if owner == nil {
		return s.BindNull(param)
	}
	return s.BindBlob(param, owner)
}

// mutation is a driver's Mutation, ready for the writer, which may still have it when the caller has left: the writer does not look at the
// caller's message.
type mutation struct {
	*driver.Mutation
	key []byte
	// The rest belongs to a write.
	groupVersion   string
	owner, data    []byte
	createRevision int64 // set by the writer, as the rest
	writes         int64
	at             position // of the row that tells of the change; none: nothing was changed
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

// request is what one caller wants done, all or nothing. The writer owns it from when it is drained until done is closed; a
// caller that leaves earlier does not look at it again.
type request struct {
	mutations []mutation
	guard     *driver.Guard
	err       error
	done      chan struct{}
	inBatch   bool // under queue.mu
}

func (r *request) size() int {
	n := 0
	for i := range r.mutations {
		n += len(r.mutations[i].data)
	}
	return n
}

// historyBounds are the rows of the log that bound history from below: followed <= horizon, pruned <= followed. A store that was made by this
// program has one horizon; in one that was upgraded, changes can be followed for a while from before it can be read.
type historyBounds struct{ followed, horizon, pruned int64 }

// checkGuard returns the error of a request whose guard does not hold. A batch reads a note once: it cannot change under a
// transaction that holds the write lock.
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
