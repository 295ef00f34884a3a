package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
)

// source feeds the watches of a store from the log. A position is the newest row seen. Rows are numbered in the order
// of commits, so positions are totally ordered.
type source struct {
	database      *database
	lastPublished atomic.Int64          // number of the newest row that Run published
	inbox         atomic.Pointer[inbox] // of the newest run; nil without one
}

var (
	_ driver.Source[position] = (*source)(nil)
	_ driver.Prover[position] = (*source)(nil)
)

// Bounds of a page of history.
const (
	pageRows  = 500
	pageBytes = driver.PageBytes
)

// Run implements driver.Source.
func (s *source) Run(ctx context.Context, ready func(position), publish func([]*event, position)) (err error) {
	c, err := s.database.connectReader(ctx, 4<<10)
	if err != nil {
		return statementError(ctx, "open a connection for watches", err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	watcher := watchLockFile(s.database.lockFile.path)
	defer watcher.close()
	r := &follower{source: s, conn: c, in: s.openInbox(), publish: publish}
	defer s.closeInbox(r.in)
	if r.at, err = c.newest(); err != nil {
		return statementError(ctx, "read the log", err)
	}
	s.lastPublished.Store(r.at.seq)
	ready(r.at)
	var failedSince time.Time
	for {
		err := r.pollFile(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failedSince = time.Time{}
		case errors.Is(err, storage.ErrCompacted), errors.Is(err, errReplaced), errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB):
			return err
		case failedSince.IsZero():
			failedSince = time.Now()
		case time.Since(failedSince) > s.database.options.Outage:
			return fmt.Errorf("the log was unreadable for %v: %w", s.database.options.Outage, err)
		}
		for poll := false; !poll; {
			reason := watcher.await(ctx, r.in.signal)
			poll = r.publishLocal()
			switch reason {
			case signalContextEnded:
				return nil
			case signalRemote:
				// This process's own notifications follow rows from the inbox.
				newest, known := s.database.lockFile.lastNotified()
				poll = poll || !known || newest != r.at
			case signalPoll:
				poll = true
			}
		}
	}
}

// follower is one run of the feed.
type follower struct {
	*source
	conn        *conn
	in          *inbox
	publish     func([]*event, position)
	at          position
	dataVersion int64 // data_version at the last poll
}

// pollFile publishes the rows of the file after the position.
func (r *follower) pollFile(ctx context.Context) error {
	if err := r.conn.files.check(); err != nil {
		return err
	}
	// A later change has another data_version, so the next poll finds it.
	version, err := r.conn.dataVersion()
	if err != nil || version == r.dataVersion {
		return err
	}
	for more := true; more && ctx.Err() == nil; {
		var events []*event
		var end position
		if events, end, more, err = r.conn.history(r.at, nil, pageRows); err != nil {
			return err
		}
		r.add(events, end)
	}
	r.dataVersion = version
	return nil
}

// publishLocal publishes the rows that this process's writer added to the log. It reports whether the file may have
// more.
func (r *follower) publishLocal() (more bool) {
	batches, pollRequested := r.in.drain()
	events, end, more := eventsAfter(batches, r.at)
	r.add(events, end)
	return more || pollRequested
}

func (r *follower) add(events []*event, end position) {
	if len(events) == 0 {
		return
	}
	// Store the number first: a proof requested after an event must not be older than the event.
	r.lastPublished.Store(end.seq)
	r.publish(events, end)
	r.at = end
}

// Newest implements driver.Prover. Its statement sees all earlier commits of all processes.
func (s *source) Newest(ctx context.Context) (at position, err error) {
	published := s.lastPublished.Load()
	err = s.database.read(ctx, "read the log", func(c *conn) error {
		at, err = c.newest()
		return err
	})
	if err != nil {
		return position{}, err
	}
	if at.seq < published {
		return position{}, errRestored // Run detects this too
	}
	s.notify() // another process's writer may have died before its notification
	return at, nil
}

// HasReached implements driver.Prover.
func (s *source) HasReached(at, target position) bool { return at.seq > target.seq || at == target }

// History implements driver.Source.
func (s *source) History(from position, f *driver.Filter) driver.History[position] {
	return driver.Pages(from, func(ctx context.Context, from position, limit int) ([]*event, position, bool, error) {
		return s.page(ctx, from, f, limit)
	})
}

func (s *source) page(ctx context.Context, from position, f *driver.Filter, limit int) (events []*event, end position, more bool, err error) {
	err = s.database.read(ctx, "read the log", func(c *conn) error {
		events, end, more, err = c.history(from, f, limit)
		return err
	})
	return events, end, more, err
}

// history reads about limit rows after a position. It decodes only the matches of f, if f is not nil.
func (c *conn) history(from position, f *driver.Filter, limit int) (events []*event, end position, more bool, err error) {
	s, err := c.query("read-log", from.seq)
	if err != nil {
		return nil, from, false, err
	}
	defer func() {
		if reset := s.Reset(); err == nil {
			err = reset
		}
	}()
	// The first row is the position itself, which proves that it belongs to this log. The zero position has no row.
	end = from
	if from != (position{}) && !(s.Step() && (position{s.ColumnInt64(0), s.ColumnInt64(1)}) == from && s.ColumnInt64(9) <= from.seq) {
		if err := s.Err(); err != nil {
			return nil, from, false, err
		}
		return nil, from, false, errRestored
	}
	var last *event // event of the previous row, wanted or not
	for rows, bytes := 0, 0; s.Step(); {
		at := position{s.ColumnInt64(0), s.ColumnInt64(1)}
		if at.seq != end.seq+1 || s.ColumnInt64(9) > from.seq {
			return nil, from, false, errRestored
		}
		if rows >= limit || bytes >= pageBytes {
			return markCutCommit(last, events, at), end, true, nil
		}
		ev, wanted, err := eventOf(s, f)
		if err != nil {
			return nil, from, false, err
		}
		if wanted {
			events = append(events, ev)
		}
		last, end = ev, at
		rows, bytes = rows+1, bytes+ev.Size
	}
	return events, end, false, s.Err()
}

// markCutCommit marks the last event of a page that ends inside a transaction. next is the position after the page.
func markCutCommit(last *event, events []*event, next position) []*event {
	if last == nil || last.At.tag != next.tag {
		return events
	}
	last.CommitContinues = true
	if n := len(events); n > 0 && events[n-1] == last {
		return events
	}
	return append(events, last)
}

// eventOf decodes a row of the log. It skips the resource of a row that the filter rejects. It fails only if the key is
// unreadable.
func eventOf(s *sqlite3.Stmt, f *driver.Filter) (ev *event, wanted bool, err error) {
	k, err := key.Parse(s.ColumnRawBlob(7))
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", errDamaged, err)
	}
	version := position{s.ColumnInt64(0), s.ColumnInt64(1)}
	ev = &event{
		Key: k, At: version, Commit: version.tag,
		Revision: revision(max(version.seq, s.ColumnInt64(4))), CreateRevision: revision(s.ColumnInt64(5)), Writes: s.ColumnInt64(6),
	}
	if f != nil && !f.Match(&k) {
		return ev, false, nil
	}
	if ev.Delete = s.ColumnType(2) != sqlite3.NULL; ev.Delete {
		version = position{s.ColumnInt64(3), s.ColumnInt64(2)}
	}
	data := s.ColumnRawBlob(8)
	ev.Resource, ev.Damage = codec.DecodeOf(k, data, version.version())
	ev.Size = len(data)
	return ev, true, nil
}

func (c *conn) dataVersion() (version int64, err error) {
	_, err = c.queryRow("data-version", func(s *sqlite3.Stmt) { version = s.ColumnInt64(0) })
	return version, err
}

// Contains implements driver.Source.
func (s *source) Contains(at position, ev *event) bool { return ev.At.seq <= at.seq }

// Advance implements driver.Source.
func (s *source) Advance(_ position, ev *event) position { return ev.At }

// Merge implements driver.Source.
func (s *source) Merge(at, end position) position {
	if end.seq > at.seq {
		return end
	}
	return at
}

// Encode implements driver.Source.
func (s *source) Encode(at position) []byte { return at.append(nil) }

// Decode implements driver.Source.
func (s *source) Decode(b []byte) (position, error) {
	at, ok := decodePosition(b)
	if !ok {
		return position{}, fmt.Errorf("%w: malformed cursor", storage.ErrInvalid)
	}
	return at, nil
}

// openInbox installs a new inbox. The first poll of its run sees the earlier commits.
func (s *source) openInbox() *inbox {
	in := &inbox{signal: make(chan struct{}, 1)}
	s.inbox.Store(in)
	return in
}

// closeInbox removes an inbox, unless another run has installed its own.
func (s *source) closeInbox(in *inbox) { s.inbox.CompareAndSwap(in, nil) }

// notify passes the writer's batches to the run, if there is one. Without batches it makes the run poll the file.
func (s *source) notify(batches ...committedBatch) {
	if in := s.inbox.Load(); in != nil {
		in.add(batches)
	}
}

// committedRows returns the rows that a committed transaction added to the log. They are nil if it deleted something,
// because only the file has the deleted resource.
func (s *source) committedRows(t *txn, batch []*request) committedBatch {
	a := committedBatch{after: t.before, end: t.last}
	if s.inbox.Load() == nil {
		return a
	}
	n := int(t.last.seq - t.before.seq)
	rows := make([]row, 0, n)
	for _, r := range batch {
		if r.err != nil {
			continue // its rows belong to a failed transaction
		}
		for i := range r.mutations {
			if c := &r.mutations[i]; c.Verb == driver.Write {
				rows = append(rows, row{c.at, c.last, c.creation, c.writes, c.Key, c.data})
			}
		}
	}
	if len(rows) == n {
		a.rows = rows
	}
	return a
}
