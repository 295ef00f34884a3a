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

// source gives the changes of the log to the feed: in the order of their numbers, up to the one that is final (frontier.go).
type source struct {
	*database
	history      *history
	inbox        *currentInbox
	notifier     *notifier
	feedPosition atomic.Pointer[position] // position of the last change that a run published
}

var (
	_ driver.Source[position] = (*source)(nil)
	_ driver.Prover[position] = (*source)(nil)
)

// Run implements driver.Source.
func (s *source) Run(ctx context.Context, ready func(position), publish func([]*event, position)) error {
	r := &run{source: s, in: s.inbox.open(), publish: publish}
	defer s.inbox.close(r.in)
	if !s.opts.NoListen {
		listening := make(chan struct{})
		ctx, cancel := context.WithCancel(ctx)
		go func() { defer close(listening); s.notifier.listen(ctx, s.inbox.requestPoll) }()
		defer func() { cancel(); <-listening }()
	}
	// What is old enough to be deleted has to be far behind.
	tick := time.NewTicker(max(min(s.opts.Poll, s.opts.Retention/4), time.Millisecond))
	defer tick.Stop()
	var away time.Time // since when the database is
	for pause := 20 * time.Millisecond; ; {
		var again time.Duration // when to look again, if nothing calls for it before
		var err error
		if r.hasPosition {
			again, err = r.poll(ctx)
		} else if err = r.begin(ctx); err == nil {
			ready(r.at)
			continue
		}
		switch {
		case err == nil:
			away, pause = time.Time{}, 20*time.Millisecond
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, storage.ErrCompacted) || classify(err) == outcomeRejected && !r.hasPosition:
			return err
		case away.IsZero():
			away = time.Now()
		case time.Since(away) > s.opts.Outage:
			return fmt.Errorf("the database stayed away for %v: %w", s.opts.Outage, err)
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
	var next page
	// What the run has published is final, even if it cannot be seen any more that it is.
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
		// If it is the same history. A pooler may have led to another one meanwhile, so this comes last.
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
	left := slices.DeleteFunc(next.changes, func(c change) bool { return from.contains(&c.at) })
	events, err = eventsOf(left)
	return events, end, next.more, err
}

// Newest implements driver.Prover: whatever was acknowledged has a number by now. The look that shows the feed to be there has to begin
// after this one.
func (s *source) Newest(ctx context.Context) (target position, err error) {
	err = s.poll(ctx, s.side, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.sql.lastNumber).Scan(&target.view.last)
	})
	if err == nil {
		target.view.pollNumber = s.history.pollCount.Add(1)
		s.inbox.requestPoll()
	}
	return target, err
}

// Reached implements driver.Prover.
func (*source) Reached(at, target position) bool { return at.reaches(&target) }

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
		return position{}, fmt.Errorf("%w: this is no cursor", storage.ErrInvalid)
	}
	return at, nil
}

const (
	// gapTimeout is how long own changes wait for the one that comes before them, which is often an own one too.
	gapTimeout = 10 * time.Millisecond
	// minPollPause is how soon changes are looked for again that a commit under way holds back, if nobody announces it.
	minPollPause = 10 * time.Millisecond
	// stallTimeout is how long a number is taken for that of a commit under way before the notes are asked, which costs the
	// server more than a look at the changes.
	stallTimeout = 40 * time.Millisecond
	// longPause is how long a pause is that is not cut short.
	longPause = 8 * time.Millisecond
)

// pollNow is the time to look again at once; 0 is never.
const pollNow = time.Duration(-1)

// run is one run of the feed.
type run struct {
	*source
	in      *inbox
	publish func([]*event, position)

	hasPosition  bool
	at           position
	session      uint64        // sessions up to this number knew the server that has the change at the position
	localChanges []change      // that wait for what comes before them
	stallStart   time.Time     // since when changes are seen only behind one that is missing: to come, or rolled back
	pollPause    time.Duration // how long the last pause was since then
	nextPollAt   time.Time     // when the database may be asked again
}

// begin finds out where the history ends.
func (r *run) begin(ctx context.Context) error {
	return r.source.poll(ctx, r.side, func(ctx context.Context, conn *pgx.Conn) (err error) {
		r.at, err = r.history.newest(ctx, conn)
		if err == nil {
			r.hasPosition = true
			at := r.at // readers share it
			r.feedPosition.Store(&at)
		}
		return err
	})
}

// poll reads what comes next and publishes it.
func (r *run) poll(ctx context.Context) (again time.Duration, err error) {
	var read page
	session := r.sessions.last.Load()
	began := time.Now()
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
	// Many handles that each look for every notification would keep the database from the writes.
	r.nextPollAt = time.Now().Add(min(time.Since(began), longPause))
	r.session = session
	r.replica.recordIssue()
	if err := r.add(&read); err != nil {
		return 0, err
	}
	_, r.localChanges = following(r.localChanges, &r.at, 0) // less what was read
	switch stalled := read.hasPending && len(read.changes) == 0; {
	case !stalled:
		r.stallStart, r.pollPause = time.Time{}, 0
	case r.stallStart.IsZero():
		r.stallStart = began
	}
	switch {
	case read.more:
		return pollNow, nil
	case read.hasPending:
		// A commit under way holds back changes that are visible. Who makes it may end without a word.
		r.pollPause = min(max(2*r.pollPause, minPollPause), 100*time.Millisecond)
		return r.pollPause, nil
	}
	return 0, nil
}

// thorough reports whether the next look has to find out how far the history is final: because somebody asks for proof, or because
// what is missing may never come.
func (r *run) thorough() bool {
	return r.history.pollCount.Load() > r.at.view.pollNumber || r.at.view.final < r.at.view.last ||
		!r.stallStart.IsZero() && time.Since(r.stallStart) > stallTimeout
}

// checkListed checks what watches have seen before the feed, once the feed is about to pass it, or there is nothing more to pass.
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
				for ; i < len(listed); i++ { // they wait for another look, where the database only did not answer
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

// add publishes the changes that come next.
func (r *run) add(read *page) error {
	end := read.end(r.at)
	if len(read.changes) == 0 && end.view == r.at.view {
		return nil
	}
	events, err := eventsOf(read.changes)
	if err != nil {
		return err
	}
	// Known before it is published: a page of history that joins the log here has to reach as far.
	r.feedPosition.Store(&end)
	r.publish(events, end)
	r.at = end
	return nil
}

// await publishes own changes until it is time to look in the database: when somebody asks for it, at the tick, or after some time.
func (r *run) await(ctx context.Context, again time.Duration, tick <-chan time.Time) error {
	var retry <-chan time.Time
	if again > 0 {
		retry = time.After(again)
	}
	// While the database is away, or a commit stalls, a look that somebody asks for finds nothing more.
	patient := again > longPause
	var gap, rested <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-retry:
			return nil
		case <-gap:
			return nil
		case <-rested:
			return nil
		case <-tick:
			return nil
		case <-r.in.signal:
		}
		own, look := r.in.take()
		next, rest := following(append(r.localChanges, own...), &r.at, r.session)
		r.localChanges = rest
		if err := r.add(&page{changes: next}); err != nil {
			return err
		}
		tooMuch := weight(r.localChanges) > inboxBytes
		if tooMuch {
			r.localChanges = nil // a poll reads them, when it can
		}
		switch {
		case patient:
		case look && rested == nil:
			rested = time.After(time.Until(r.nextPollAt))
		case len(r.localChanges) == 0 && !tooMuch:
			gap = nil
		case gap == nil:
			gap = time.After(gapTimeout)
		}
	}
}
