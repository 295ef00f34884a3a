package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// source reads the changes of the log for the feed, in the order of their numbers, up to the final one (frontier.go).
type source struct {
	*database
	history      *history
	inbox        *currentInbox
	notifier     *notifier
	feedPosition atomic.Pointer[position] // position of the last change that a run has published
}

var (
	_ driver.Source[position] = (*source)(nil)
	_ driver.Prover[position] = (*source)(nil)
)

// Run implements driver.Source.
func (s *source) Run(ctx context.Context, ready func(position), publish func([]*event, position)) error {
	r := &run{source: s, in: s.inbox.open(), publish: publish}
	defer s.inbox.close(r.in)
	defer s.notifier.gathers.Store(false)
	defer s.telemetry.lag.Reset()
	defer s.telemetry.endStall(ctx)
	if !s.opts.NoListen {
		listening := make(chan struct{})
		ctx, cancel := context.WithCancel(ctx)
		go func() { defer close(listening); s.notifier.listen(ctx, s.inbox.requestPoll) }()
		defer func() { cancel(); <-listening }()
	}
	// A change that is old enough to be deleted must be far behind.
	tick := time.NewTicker(max(min(s.opts.Poll, s.opts.Retention/4), time.Millisecond))
	defer tick.Stop()
	var outageStart time.Time // zero while the database answers
	for pause := 20 * time.Millisecond; ; {
		var again time.Duration // pause before the next poll, unless one is requested earlier
		var err error
		if r.hasPosition {
			again, err = r.poll(ctx)
		} else if err = r.begin(ctx); err == nil {
			ready(r.at)
			continue
		}
		switch {
		case err == nil:
			s.telemetry.lag.Answered()
			s.telemetry.reportStall(ctx, r.stallStart, r.at.revision, func() (noteHolder, error) { return r.pendingWriter(ctx) })
			outageStart, pause = time.Time{}, 20*time.Millisecond
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, storage.ErrCompacted) || classify(err) == outcomeRejected && !r.hasPosition:
			return err
		case outageStart.IsZero():
			outageStart = time.Now()
			s.telemetry.lag.Lost(outageStart)
			s.telemetry.Logger().WarnContext(ctx, "the feed cannot read changes", "error", err)
		case time.Since(outageStart) > s.opts.Outage:
			return fmt.Errorf("the database was unreachable for %v: %w", s.opts.Outage, err)
		}
		if err != nil {
			again = pause
			pause = min(2*pause, time.Second)
		}
		if again == pollNow {
			continue
		}
		if err := r.await(ctx, again, tick.C); err != nil {
			return err
		}
	}
}

// History implements driver.Source.
func (s *source) History(from position, _ *driver.Filter) driver.History[position] {
	return driver.Pages(from, s.page)
}

func (s *source) page(ctx context.Context, from position, limit int) (events []*event, end position, more bool, err error) {
	done, err := s.beginCatchUp(ctx)
	if err != nil {
		return nil, from, false, err
	}
	defer done()
	var next page
	// Published changes are final, even if the notes cannot prove it any more.
	published := s.feedPosition.Load()
	err = s.poll(ctx, s.main, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if next, err = s.history.after(ctx, conn, &from, 0, limit); err == nil {
			err = s.history.checkAboveFrontier(ctx, conn, &from)
		}
		if err != nil || !next.hasPending || published == nil || published.revision <= next.view.final {
			return err
		}
		if next, err = s.history.after(ctx, conn, &from, published.revision, limit); err != nil {
			return err
		}
		// Published changes are final only in the same history. The check is the last statement, because a pooler may have
		// switched to another server before it.
		var piece []byte
		err = conn.QueryRow(ctx, s.sql.tokenPrefix, published.revision, published.index).Scan(&piece)
		if err == nil && string(piece) != string(published.tokenPrefix[:]) {
			err = errForked
		}
		return err
	})
	if err != nil {
		return nil, from, false, err
	}
	s.replica.recordIssue()
	end = next.end(from)
	if !next.more {
		s.inbox.addListing(&end)
	}
	changes := slices.DeleteFunc(next.changes, func(c change) bool { return from.contains(&c.at) })
	events, err = eventsOf(changes)
	return events, end, next.more, err
}

// Newest implements driver.Prover: all acknowledged changes have a number by now. The poll that proves the feed's progress must
// begin after Newest.
func (s *source) Newest(ctx context.Context) (target position, err error) {
	err = s.poll(ctx, s.side, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.sql.lastNumber).Scan(&target.view.last)
	})
	if err == nil {
		target.view.pollNumber = s.history.request(target.view.last)
		s.inbox.requestPoll()
	}
	return target, err
}

// HasReached implements driver.Prover.
func (*source) HasReached(at, target position) bool { return at.reaches(&target) }

// Contains implements driver.Source.
func (*source) Contains(at position, ev *event) bool { return at.contains(&ev.At) }

// Advance implements driver.Source.
func (*source) Advance(at position, ev *event) position { return at.with(&ev.At) }

// Merge implements driver.Source.
func (*source) Merge(at, end position) position { return at.with(&end) }

// Encode implements driver.Source.
func (*source) Encode(at position) []byte { return at.append(nil) }

// Decode implements driver.Source.
func (*source) Decode(b []byte) (position, error) {
	at, ok := parsePosition(b)
	if !ok {
		return position{}, fmt.Errorf("%w: malformed cursor", storage.ErrInvalid)
	}
	return at, nil
}

const (
	// gapTimeout is how long a change of this handle waits for the previous one, which often comes from this handle too.
	gapTimeout = 10 * time.Millisecond
	// minPollPause is the first pause before another poll for changes that wait for a pending commit, without a notification.
	minPollPause = 10 * time.Millisecond
	// stallTimeout is how long a missing number is assumed to belong to a pending commit. Then a poll also reads the notes, which
	// costs the server more than reading the changes.
	stallTimeout = 40 * time.Millisecond
)

// pollNow, as a pause, means no pause; 0 means no limit.
const pollNow = time.Duration(-1)

// run is one run of the feed.
type run struct {
	*source
	in      *inbox
	publish func([]*event, position)

	hasPosition  bool
	at           position
	session      uint64        // sessions up to this number used the server that has the change at the position
	localChanges []change      // changes of this handle that wait for earlier ones
	stallStart   time.Time     // since when all visible changes are behind a missing number, pending or rolled back
	pollPause    time.Duration // length of the last pause since then
	proofPause   time.Duration // length of the last pause while a requested proof makes no progress
	next         pace          // times of the next poll
}

// begin reads the position of the end of the history.
func (r *run) begin(ctx context.Context) error {
	return r.source.poll(ctx, r.side, func(ctx context.Context, conn *pgx.Conn) (err error) {
		r.at, err = r.history.newest(ctx, conn)
		if err == nil {
			r.hasPosition = true
			at := r.at // a copy, which readers share
			r.feedPosition.Store(&at)
		}
		return err
	})
}

// poll reads and publishes the next changes.
func (r *run) poll(ctx context.Context) (again time.Duration, err error) {
	var read page
	session := r.sessions.last.Load()
	began, final := time.Now(), r.at.view.final
	r.next = pace{}
	err = r.source.poll(ctx, r.side, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if r.thorough() {
			read, err = r.history.after(ctx, conn, &r.at, 0, pageRows)
		} else {
			read, err = r.history.next(ctx, conn, &r.at, pageRows)
		}
		if err == nil {
			err = r.checkListed(ctx, conn, &read)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	now := time.Now()
	r.session = session
	r.replica.recordIssue()
	if err := r.add(&read); err != nil {
		return 0, err
	}
	_, r.localChanges = following(r.localChanges, &r.at, 0) // without the changes that were read
	switch stalled := read.hasPending && len(read.changes) == 0; {
	case !stalled:
		r.stallStart, r.pollPause = time.Time{}, 0
	case r.stallStart.IsZero():
		r.stallStart = began
	}
	if r.at.view.final > final || !r.belowTarget() {
		r.proofPause = 0
	}
	r.telemetry.lag.Update(r.at.revision, read.newest, began)
	r.next = r.notifier.pace(now, now.Sub(began), len(read.changes), r.opts.Latency)
	switch {
	case read.more:
		return pollNow, nil
	case read.hasPending && (r.next.pollAt.IsZero() || len(read.changes) == 0 || r.thorough()):
		// A pending commit blocks visible changes. Its process may die without a notification.
		r.pollPause = longerPause(r.pollPause)
		return r.pollPause, nil
	case r.belowTarget():
		// A pending commit blocks a proof. It may end without a notification, or this handle may publish its change without a poll.
		r.proofPause = longerPause(r.proofPause)
		if at := now.Add(r.proofPause); r.next.pollAt.IsZero() || at.Before(r.next.pollAt) {
			r.next.pollAt = at
		}
	}
	return 0, nil
}

// longerPause returns the pause before the next poll while a commit is pending, from the one before the last poll.
func longerPause(last time.Duration) time.Duration {
	return min(max(2*last, minPollPause), 100*time.Millisecond)
}

// pendingWriter returns the session with the lowest note.
func (r *run) pendingWriter(ctx context.Context) (w noteHolder, err error) {
	err = r.source.poll(ctx, r.side, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, r.sql.pendingWriter).Scan(&w.pid, &w.event, &w.role)
	})
	return w, err
}

// thorough reports whether the next poll must read how far the history is final: because a requested proof was not read or is below its
// target, or because a missing number may have been rolled back. The target is the highest of all requests, so a poll that reaches it has
// reached each of them (position.reaches). Writes after it need no proof.
func (r *run) thorough() bool {
	return r.history.pollCount.Load() > r.at.view.pollNumber || r.belowTarget() || !r.stallStart.IsZero() && time.Since(r.stallStart) > stallTimeout
}

// belowTarget reports whether a requested proof was read and is below its target.
func (r *run) belowTarget() bool {
	return r.at.view.final < min(r.history.proofTarget.Load(), r.at.view.last)
}

// checkListed verifies the positions of watches that were ahead of the feed, when the feed is about to pass them, or has no more
// changes to pass.
func (r *run) checkListed(ctx context.Context, conn *pgx.Conn, read *page) error {
	listed := r.in.takeListings()
	end := read.end(r.at)
	for i := range listed {
		passed := max(listed[i].revision, listed[i].lastAboveFrontier()) <= end.revision
		if passed || !read.more && !read.hasPending {
			err := r.history.checkPresent(ctx, conn, read, &listed[i])
			if err == nil {
				err = r.history.checkAboveFrontier(ctx, conn, &listed[i])
			}
			if err != nil {
				for ; i < len(listed); i++ { // they are verified by the next poll if the database did not answer
					r.in.listingPosition(&listed[i])
				}
				return err
			}
		}
		if !passed {
			r.in.listingPosition(&listed[i])
		}
	}
	return nil
}

// add publishes a page of changes.
func (r *run) add(read *page) error {
	end := read.end(r.at)
	if len(read.changes) == 0 && end.view == r.at.view {
		return nil
	}
	events, err := eventsOf(read.changes)
	if err != nil {
		return err
	}
	// The position is stored before it is published: a page of history that continues in the log from here must reach as far.
	r.feedPosition.Store(&end)
	r.publish(events, end)
	r.at = end
	r.telemetry.lag.Update(end.revision, 0, time.Time{})
	return nil
}

// await publishes the changes of this handle until the next poll: when one is requested, at the tick, or after some time.
func (r *run) await(ctx context.Context, again time.Duration, tick <-chan time.Time) error {
	var retry <-chan time.Time
	if again > 0 {
		retry = time.After(again)
	}
	// While the database is unreachable, or a commit stalls, a requested poll would find nothing.
	ignoreRequests := again > longPause
	var gap, rateLimit, gathered <-chan time.Time
	if !r.next.pollAt.IsZero() {
		gathered = time.After(time.Until(r.next.pollAt))
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-retry:
			return nil
		case <-gap:
			return nil
		case <-rateLimit:
			return nil
		case <-gathered:
			return nil
		case <-tick:
			return nil
		case <-r.in.signal:
		}
		local, poll := r.in.take()
		next, rest := following(append(r.localChanges, local...), &r.at, r.session)
		r.localChanges = rest
		if err := r.add(&page{changes: next}); err != nil {
			return err
		}
		tooMuch := weight(r.localChanges) > inboxBytes
		if tooMuch {
			r.localChanges = nil // a later poll reads them
		}
		switch {
		case ignoreRequests:
		case poll && r.history.pollCount.Load() > r.at.view.pollNumber:
			rateLimit = time.After(time.Until(r.next.proofAt))
		case poll && rateLimit == nil:
			rateLimit = time.After(time.Until(r.next.requestAt))
		case len(r.localChanges) == 0 && !tooMuch:
			gap = nil
		case gap == nil:
			gap = time.After(max(gapTimeout, time.Until(r.next.requestAt)))
		}
	}
}
