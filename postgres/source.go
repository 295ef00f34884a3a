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
	history   *history
	inbox     *currentInbox
	notifier  *notifier
	replica   *replica
	published atomic.Pointer[position] // of the last change that a run has published
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
		go func() { defer close(listening); s.notifier.listen(ctx, s.inbox.lookAgain) }()
		defer func() { cancel(); <-listening }()
	}
	// What is old enough to be deleted has to be far behind.
	tick := time.NewTicker(max(min(s.opts.Poll, s.opts.Retention/4), time.Millisecond))
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
		case time.Since(away) > s.opts.Outage:
			return fmt.Errorf("the database stayed away for %v: %w", s.opts.Outage, err)
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

// History implements driver.Source.
func (s *source) History(from position, _ *driver.Filter) driver.History[position] {
	return driver.Pages(from, s.page)
}

func (s *source) page(ctx context.Context, from position, limit int) (events []*event, end position, more bool, err error) {
	var next page
	// What the run has published is final, even if it cannot be seen any more that it is.
	published := s.published.Load()
	err = s.poll(ctx, s.main, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if next, err = s.history.after(ctx, conn, &from, 0, limit); err == nil {
			err = s.history.checkAhead(ctx, conn, &from)
		}
		if err != nil || !next.back || published == nil || published.revision <= next.view.final {
			return err
		}
		if next, err = s.history.after(ctx, conn, &from, published.revision, limit); err != nil {
			return err
		}
		// If it is the same history. A pooler may have led to another one meanwhile, so this comes last.
		var piece []byte
		err = conn.QueryRow(ctx, s.sql.piece, published.revision, published.place).Scan(&piece)
		if err == nil && string(piece) != string(published.piece[:]) {
			err = errForked
		}
		return err
	})
	if err != nil {
		return nil, from, false, err
	}
	s.replica.answered()
	end = next.end(from)
	if !next.more {
		s.inbox.listed(&end)
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
		target.view.look = s.history.looks.Add(1)
		s.inbox.lookAgain()
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
