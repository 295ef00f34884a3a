package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// source reads the log of changes for the feed: in the order of their numbers, up to the one that is final (frontier.go).
type source struct{ b *handle }

var (
	_ driver.Source[position] = source{}
	_ driver.Prover[position] = source{}
)

const (
	// pollPatience is how long a poll waits for its answer before it takes the connection for dead.
	pollPatience = 15 * time.Second
	// gapPatience is how long own changes wait for the one that comes before them, which is often an own one too.
	gapPatience = 10 * time.Millisecond
	// heldBackAtFirst is how soon changes are looked for again that a commit under way holds back, if nobody announces it.
	heldBackAtFirst = 10 * time.Millisecond
	// stallPatience is how long a number is taken for that of a commit under way before the notes are asked, which costs the
	// server more than a look at the changes.
	stallPatience = 40 * time.Millisecond
	// longPause is how long a pause is that is not cut short.
	longPause = 8 * time.Millisecond
)

// Run implements driver.Source.
func (s source) Run(ctx context.Context, ready func(position), publish func([]*event, position)) error {
	b := s.b
	r := &run{source: s, in: b.attend(), publish: publish}
	defer b.leave(r.in)
	if !b.opts.NoListen {
		listening := make(chan struct{})
		ctx, cancel := context.WithCancel(ctx)
		go func() { defer close(listening); b.listen(ctx) }()
		defer func() { cancel(); <-listening }()
	}
	// What is old enough to be deleted has to be far behind.
	tick := time.NewTicker(max(min(b.opts.Poll, b.opts.Retention/4), time.Millisecond))
	defer tick.Stop()
	var away time.Time // since when the database is
	for pause := 20 * time.Millisecond; ; {
		var again time.Duration // when to look again, if nothing calls for it before
		var err error
		if r.begun {
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
		case errors.Is(err, storage.ErrCompacted) || fateOf(err) == refused && !r.begun:
			return err
		case away.IsZero():
			away = time.Now()
		case time.Since(away) > b.opts.Outage:
			return fmt.Errorf("the database stayed away for %v: %w", b.opts.Outage, err)
		}
		if err != nil {
			again = pause
			pause = min(2*pause, time.Second)
		}
		if again == now {
			continue
		}
		if err := r.await(ctx, again, tick.C); err != nil {
			return err
		}
	}
}

// now is the time to look again at once; 0 is never.
const now = time.Duration(-1)

// run is one run of the feed.
type run struct {
	source
	in      *inbox
	publish func([]*event, position)

	begun    bool
	at       position
	session  uint64        // sessions up to this number knew the server that has the change at the position
	own      []change      // that wait for what comes before them
	stalled  time.Time     // since when changes are seen only behind one that is missing: to come, or rolled back
	heldBack time.Duration // how long the last pause was since then
	rested   time.Time     // when the database may be asked again
}

// begin finds out where the history ends.
func (r *run) begin(ctx context.Context) error {
	return r.onSide(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, final, err := scanFinal(conn.QueryRow(ctx, r.b.sql.final))
		if err != nil {
			return err
		}
		r.at, err = r.b.lastChange(ctx, conn, final)
		r.begun = err == nil
		at := r.at // readers share it
		r.b.published.Store(&at)
		return err
	})
}

// onSide carries out a short query on a connection that does not wait for callers'.
func (s source) onSide(ctx context.Context, query func(ctx context.Context, conn *pgx.Conn) error) error {
	return s.on(ctx, s.b.side, query)
}

func (s source) on(ctx context.Context, pool *pgxpool.Pool, query func(ctx context.Context, conn *pgx.Conn) error) error {
	connecting, cancel := context.WithTimeout(ctx, pollPatience)
	defer cancel()
	conn, err := primary(connecting, pool)
	if err == nil {
		defer conn.Release()
		ctx, done := s.b.watchdog.watch(ctx, conn.Conn(), false, 0)
		defer done(false)
		err = query(ctx, conn.Conn())
	}
	elsewhere(pool, err)
	return err
}

// poll reads what comes next and publishes it.
func (r *run) poll(ctx context.Context) (again time.Duration, err error) {
	var found found
	session := r.b.sessions.last.Load()
	began := time.Now()
	err = r.onSide(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if r.thorough() {
			found, err = r.b.changesAfter(ctx, conn, &r.at, 0, pageRows)
		} else {
			found, err = r.b.changesNext(ctx, conn, &r.at, pageRows)
		}
		if err == nil {
			err = r.checkListed(ctx, conn, &found)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	// Many handles that each look for every notification would keep the database from the writes.
	r.rested = time.Now().Add(min(time.Since(began), longPause))
	r.session = session
	r.b.answered()
	if err := r.add(&found); err != nil {
		return 0, err
	}
	_, r.own = following(r.own, &r.at, 0) // less what was read
	switch stalled := found.back && len(found.changes) == 0; {
	case !stalled:
		r.stalled, r.heldBack = time.Time{}, 0
	case r.stalled.IsZero():
		r.stalled = began
	}
	switch {
	case found.more:
		return now, nil
	case found.back:
		// A commit under way holds back changes that are visible. Who makes it may end without a word.
		r.heldBack = min(max(2*r.heldBack, heldBackAtFirst), 100*time.Millisecond)
		return r.heldBack, nil
	}
	return 0, nil
}

// thorough reports whether the next look has to find out how far the history is final: because somebody asks for proof, or because
// what is missing may never come.
func (r *run) thorough() bool {
	return r.b.looks.Load() > r.at.view.look || r.at.view.final < r.at.view.last ||
		!r.stalled.IsZero() && time.Since(r.stalled) > stallPatience
}

// add publishes the changes that come next.
func (r *run) add(found *found) error {
	end := found.end(r.at)
	if len(found.changes) == 0 && end.view == r.at.view {
		return nil
	}
	events, err := eventsOf(found.changes)
	if err != nil {
		return err
	}
	// Known before it is published: a page of history that joins the log here has to reach as far.
	r.b.published.Store(&end)
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
		case <-r.in.bell:
		}
		own, look := r.in.take()
		next, rest := following(append(r.own, own...), &r.at, r.session)
		r.own = rest
		if err := r.add(&found{changes: next}); err != nil {
			return err
		}
		tooMuch := weight(r.own) > inboxBytes
		if tooMuch {
			r.own = nil // a poll reads them, when it can
		}
		switch {
		case patient:
		case look && rested == nil:
			rested = time.After(time.Until(r.rested))
		case len(r.own) == 0 && !tooMuch:
			gap = nil
		case gap == nil:
			gap = time.After(gapPatience)
		}
	}
}

// History implements driver.Source.
func (s source) History(from position, _ *driver.Filter) driver.History[position] {
	return driver.Pages(from, s.page)
}

func (s source) page(ctx context.Context, from position, limit int) (events []*event, end position, more bool, err error) {
	var found found
	// What the run has published is final, even if it cannot be seen any more that it is.
	published := s.b.published.Load()
	err = s.on(ctx, s.b.pool, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if found, err = s.b.changesAfter(ctx, conn, &from, 0, limit); err == nil {
			err = s.b.checkAhead(ctx, conn, &from)
		}
		if err != nil || !found.back || published == nil || published.revision <= found.view.final {
			return err
		}
		// If it is the same history.
		var piece []byte
		if err := conn.QueryRow(ctx, s.b.sql.piece, published.revision, published.place).Scan(&piece); err != nil {
			return err
		}
		if string(piece) != string(published.piece[:]) {
			return errForked
		}
		found, err = s.b.changesAfter(ctx, conn, &from, published.revision, limit)
		return err
	})
	if err != nil {
		return nil, from, false, err
	}
	s.b.answered()
	end = found.end(from)
	if !found.more {
		s.b.inbox.Load().listed(&end)
	}
	left := slices.DeleteFunc(found.changes, func(c change) bool { return from.contains(&c.at) })
	events, err = eventsOf(left)
	return events, end, found.more, err
}

// Newest implements driver.Prover: whatever was acknowledged has a number by now. The look that shows the feed to be there has to begin
// after this one.
func (s source) Newest(ctx context.Context) (target position, err error) {
	err = s.onSide(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.b.sql.lastNumber).Scan(&target.view.last)
	})
	if err == nil {
		target.view.look = s.b.looks.Add(1)
		s.b.lookAgain()
	}
	return target, err
}

// Reached implements driver.Prover.
func (s source) Reached(at, target position) bool { return at.reaches(&target) }

// Contains implements driver.Source.
func (s source) Contains(at position, ev *event) bool { return at.contains(&ev.At) }

// Advance implements driver.Source.
func (s source) Advance(at position, ev *event) position { return at.with(&ev.At) }

// Merge implements driver.Source.
func (s source) Merge(at, end position) position { return at.with(&end) }

// Encode implements driver.Source.
func (s source) Encode(at position) []byte { return at.append(nil) }

// Decode implements driver.Source.
func (s source) Decode(b []byte) (position, error) {
	at, ok := parsePosition(b)
	if !ok {
		return position{}, fmt.Errorf("%w: this is no cursor", storage.ErrInvalid)
	}
	return at, nil
}
