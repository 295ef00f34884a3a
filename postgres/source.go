package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/internal/key"
)

// source reads the log of changes for the feed.
//
// Neither sequence numbers nor transaction ids come in the order of commits, so "what is new" is told by snapshots: a poll
// reads the changes whose transactions the last poll's snapshot did not see. They are visible now, or they would not be read.
// A transaction that stays open holds nobody up: its changes come in the poll after its commit. Within a poll changes are in
// the order of sequence numbers, which were drawn under the lock of the row, so for each key that is the order of commits.
type source struct{ b *Backend }

type event = feed.Event[position]

const (
	// pollRows is what one poll reads at most. If more is new, it is read in steps, in order, up to a snapshot that stays.
	pollRows = 5000
	// pollPatience is how long a poll waits for its answer before it takes the connection for dead.
	pollPatience = 15 * time.Second
)

// Run implements feed.Source.
func (s source) Run(ctx context.Context, ready func(position), publish func([]*event, position)) error {
	b := s.b
	in := b.attend()
	defer b.leave(in)
	if !b.opts.NoListen {
		listening := make(chan struct{})
		ctx, cancel := context.WithCancel(ctx)
		go func() { defer close(listening); b.listen(ctx) }()
		defer func() { cancel(); <-listening }()
	}
	// What is old enough to be deleted has to be far behind.
	tick := time.NewTicker(min(b.opts.Poll, b.opts.Retention/4))
	defer tick.Stop()
	var at position
	var away time.Time // since when the database is
	for pause := 20 * time.Millisecond; ; {
		events, end, more, err := s.next(ctx, at)
		switch {
		case err == nil && at.old == nil:
			ready(end)
			at, away, pause = end, time.Time{}, 20*time.Millisecond
			continue
		case err == nil:
			if len(events) > 0 || end.old.xmax != at.old.xmax || end.until != at.until {
				publish(events, end)
				at = end
			}
			away, pause = time.Time{}, 20*time.Millisecond
			if more {
				continue
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, storage.ErrCompacted) || fateOf(err) == refused && at.old == nil:
			return err
		case away.IsZero():
			away = time.Now()
		case time.Since(away) > b.opts.Outage:
			return fmt.Errorf("the database stayed away for %v: %w", b.opts.Outage, err)
		}
		var retry <-chan time.Time
		if err != nil {
			retry = time.After(pause)
			pause = min(2*pause, time.Second)
		}
		if at, err = s.await(ctx, in, at, retry, tick.C, publish); err != nil {
			return err
		}
	}
}

// await publishes own changes until it is time to poll.
func (s source) await(ctx context.Context, in *inbox, at position, retry, tick <-chan time.Time, publish func([]*event, position)) (position, error) {
	for {
		select {
		case <-ctx.Done():
			return at, ctx.Err()
		case <-retry:
			return at, nil
		case <-tick:
			return at, nil
		case <-in.bell:
		}
		batches, look := in.take()
		for _, batch := range batches {
			if at.old == nil || at.until != nil || !at.old.follows(batch) {
				look = true
				break
			}
			if at.old.sees(batch[0].xid) {
				continue
			}
			end := at.old.adding(batch[0].xid)
			slices.SortFunc(batch, bySeq)
			events, err := eventsOf(batch, at.old, end)
			if err != nil {
				return at, err
			}
			at = position{old: end}
			publish(events, at)
		}
		if look {
			return at, nil
		}
	}
}

// next reads what is new after a position: at most some rows, in order. Without a position it only finds one.
func (s source) next(ctx context.Context, at position) (events []*event, end position, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollPatience)
	defer cancel()
	switch {
	case at.old == nil:
		current, err := s.current(ctx, s.b.side)
		return nil, position{old: current}, false, err
	case at.until != nil:
		return s.step(ctx, s.b.side, at, pollRows)
	}
	var found changes
	rows, err := s.b.side.Query(ctx, s.b.sql.poll, xid8(at.old.xmax), xids(at.old.inFlight), pollRows)
	if err == nil {
		err = found.read(rows)
	}
	if err == nil {
		err = s.usable(&found.about, &at)
	}
	if err != nil {
		return nil, at, false, err
	}
	now := found.about.now
	if found.count >= pollRows {
		// There may be more: read it in steps up to this snapshot.
		return nil, position{old: at.old, until: now, seq: math.MinInt64}, true, nil
	}
	s.b.answered()
	events, err = eventsOf(found.rows, at.old, now)
	return events, position{old: now}, false, err
}

// current returns the snapshot of this moment.
func (s source) current(ctx context.Context, pool *pgxpool.Pool) (*snapshot, error) {
	var found about
	var text string
	err := pool.QueryRow(ctx, s.b.sql.now).Scan(&text, &found.horizon, (*[16]byte)(&found.id))
	if err != nil {
		return nil, err
	}
	if found.now, err = parseSnapshot(text); err != nil {
		return nil, failed{err}
	}
	return found.now, s.usable(&found, nil)
}

// step reads some of the changes between at.old and at.until, after at.seq.
func (s source) step(ctx context.Context, pool *pgxpool.Pool, at position, limit int) (events []*event, end position, more bool, err error) {
	var found changes
	rows, err := pool.Query(ctx, s.b.sql.changes,
		xid8(at.old.xmax), xids(at.old.inFlight), xid8(at.until.xmax), xids(at.until.inFlight), at.seq, limit)
	if err == nil {
		err = found.read(rows)
	}
	if err == nil {
		err = s.usable(&found.about, &at)
	}
	if err != nil {
		return nil, at, false, err
	}
	s.b.answered()
	end = position{old: at.until}
	if found.count >= limit {
		end = position{old: at.old, until: at.until, seq: found.last()}
	}
	events, err = eventsOf(found.rows, at.old, at.until)
	return events, at.with(end), found.count >= limit, err
}

// History implements feed.Source.
func (s source) History(from position, _ *key.Filter) feed.History[position] {
	return feed.Pages(from, s.page)
}

func (s source) page(ctx context.Context, from position, limit int) (events []*event, end position, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollPatience)
	defer cancel()
	current, err := s.current(ctx, s.b.pool)
	if err != nil {
		return nil, from, false, err
	}
	if !current.covers(from.old) || !current.covers(from.until) {
		return nil, from, false, errFuture
	}
	if from.until != nil {
		events, end, _, err = s.step(ctx, s.b.pool, from, limit)
		return events, end, true, err
	}
	return s.step(ctx, s.b.pool, position{old: from.old, until: current, seq: math.MinInt64}, limit)
}

// Contains implements feed.Source.
func (s source) Contains(at position, ev *event) bool { return at.contains(ev.At.xid, ev.At.seq) }

// Advance implements feed.Source.
func (s source) Advance(at position, ev *event) position { return at.with(ev.At) }

// Merge implements feed.Source.
func (s source) Merge(at, end position) position { return at.with(end) }

// Cursor implements feed.Source.
func (s source) Cursor(at position) string { return at.cursor(s.b.id) }

// about is what a statement says beside its changes.
type about struct {
	now     *snapshot
	horizon *string
	id      cursor.StoreID
}

var (
	errPruned = fmt.Errorf("%w: changes after the cursor have been deleted (see the parameter retention)", storage.ErrCompacted)
	errOther  = fmt.Errorf("%w: the store was replaced", storage.ErrCompacted)
	errFuture = fmt.Errorf("%w: the cursor is ahead of the database, which must have been restored from a backup", storage.ErrCompacted)
)

// usable tells whether the store still has all changes after at.
func (s source) usable(found *about, at *position) error {
	if found.id != s.b.id {
		return errOther
	}
	if found.now != nil {
		s.b.saw(found.now.xmax - 1)
		if at != nil && !found.now.covers(at.old) {
			return errFuture
		}
	}
	if at == nil || found.horizon == nil {
		return nil
	}
	horizon, err := parseSnapshot(*found.horizon)
	if err != nil {
		return failed{err}
	}
	if !at.old.covers(horizon) {
		return errPruned
	}
	return nil
}

func xid8(xid uint64) string { return strconv.FormatUint(xid, 10) }

func xids(list []uint64) []string {
	texts := make([]string, len(list))
	for i, xid := range list {
		texts[i] = xid8(xid)
	}
	return texts
}
