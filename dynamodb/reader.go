package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// reader follows the stream of the table, from its end at the moment of its opening.
//
// It goes in rounds: each reads one page of every shard that it may read, and publishes what it found as one batch. While
// something happens the rounds follow each other at the interval Poll; in quiet times the pauses double up to IdlePoll. A write
// through the same backend wakes it.
type reader struct {
	shardReader
	name    [16]byte // in its ticks
	kick    chan struct{}
	stopped chan struct{} // closed when the run is over
	ticking sync.WaitGroup

	mu    sync.Mutex
	pos   *position
	ready bool
	ticks uint64        // written
	round chan struct{} // closed when a round ends
	proof proof

	// Of the goroutine that runs.
	iterators  map[string]string
	describeAt time.Time     // when to list the shards next
	await      time.Duration // pause between listings while a shard that is not listed yet is awaited
	disabled   bool          // the stream was seen disabled
	lastGood   time.Time
}

const (
	// describeEvery is how often the shards are listed without a reason, so that a stream that was disabled is noticed.
	describeEvery = 5 * time.Minute
	// describePause is the least time between two listings while a shard is awaited, describeMost the longest.
	describePause, describeMost = 250 * time.Millisecond, 10 * time.Second
	// maxFetches bounds the calls of one round that are under way at once.
	maxFetches = 16
)

func newReader(b *handle) *reader {
	return &reader{
		shardReader: shardReader{b: b, lines: newLineage()},
		name:        newToken(),
		kick:        make(chan struct{}, 1),
		stopped:     make(chan struct{}),
		round:       make(chan struct{}),
		iterators:   map[string]string{},
		proof:       proof{waiting: map[uint64]bool{}, learned: map[string]uint16{}},
	}
}

func (r *reader) position() *position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pos
}

func (r *reader) setPosition(p *position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pos = p
}

func (r *reader) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// running reports whether the reader is reading, and has a position that is good for a cursor.
func (r *reader) running() bool {
	select {
	case <-r.stopped:
		return false
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// open finds the stream and its shards and stands at the end of those that are open. It goes on trying while DynamoDB is away.
func (r *reader) open(ctx context.Context) error {
	begun := time.Now()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := r.tryOpen(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, storage.ErrCompacted) || judge(err) == refused || time.Since(begun) > r.b.opts.Outage {
			return err
		}
		sleep(ctx, pause)
	}
}

func (r *reader) tryOpen(ctx context.Context) (err error) {
	if r.stream, err = answer(ctx, r.b, r.b.latestStream); err != nil {
		return err
	}
	pos := &position{stream: r.stream, asOf: r.b.clock.now()}
	l, err := r.describe(ctx, pos)
	if err != nil {
		return err
	}
	for _, pl := range l.open(pos.asOf) {
		if pl.seq != ended {
			if r.iterators[pl.shard], err = r.latest(ctx, pl.shard); err != nil {
				return err
			}
		}
		pos = pos.with(pl.shard, pl.seq)
	}
	r.describeAt, r.lastGood = time.Now().Add(describeEvery), time.Now()
	r.setPosition(pos)
	return nil
}

// run reads until ctx is over.
func (r *reader) run(ctx context.Context, ready func(*position), publish func([]*event, *position)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer r.ticking.Wait()
	defer cancel()
	defer close(r.stopped)
	publishing := func(events []*event, end *position) {
		switch {
		case r.ready:
			publish(events, end)
		case end.proven > 0: // what came before is in nobody's history
			r.mu.Lock()
			r.ready = true
			r.mu.Unlock()
			ready(end)
		}
	}
	var timer *time.Timer
	for pause := r.b.opts.Poll; ; {
		begun := time.Now()
		found, full, err := r.turn(ctx, publishing)
		if err == nil {
			err = r.unproven()
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case full:
			continue
		case found || r.proving():
			pause = r.b.opts.Poll
		default:
			pause = min(2*pause, max(r.b.opts.IdlePoll, r.b.opts.Poll))
		}
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-r.kick:
			pause = r.b.opts.Poll
			if !sleep(ctx, pause-time.Since(begun)) {
				return ctx.Err()
			}
		}
	}
}

func (r *reader) proving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proof.begun > r.proof.done
}

// turn is one round, with what is published of it. It returns an error only where there is no going on.
func (r *reader) turn(ctx context.Context, publish func([]*event, *position)) (found, full bool, err error) {
	before := r.position()
	events, after, full, err := r.poll(ctx)
	if after != before {
		r.setPosition(after)
	}
	r.advance(ctx)
	after = r.position()
	if len(events) > 0 || after.moved(before) {
		publish(events, after)
	}
	if err == nil {
		err = r.follow(ctx)
	}
	r.endRound()
	switch {
	case err == nil:
		r.lastGood = time.Now()
	case ctx.Err() != nil, errors.Is(err, storage.ErrCompacted), errors.Is(err, errStreamEnded):
		return false, false, err
	case time.Since(r.lastGood) > r.b.opts.Outage:
		return false, false, fmt.Errorf("the stream stayed out of reach for %v: %w", r.b.opts.Outage, err)
	default:
		full = false
	}
	return len(events) > 0, full, nil
}

func (p *position) moved(from *position) bool {
	return p.proven != from.proven || len(p.shards) != len(from.shards) || !p.within(from)
}

func (r *reader) endRound() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.round)
	r.round = make(chan struct{})
}

// poll reads a page of every shard that is not at its end. What could be read counts, also beside an error.
func (r *reader) poll(ctx context.Context) (events []*event, pos *position, full bool, err error) {
	pos = r.position()
	pages := make([]*page, len(pos.shards))
	var g errgroup.Group
	g.SetLimit(maxFetches)
	for i, pl := range pos.shards {
		if pl.seq == ended {
			continue
		}
		iterator := r.iterators[pl.shard]
		g.Go(func() (err error) {
			pages[i], err = r.fetch(ctx, pl, iterator)
			return err
		})
	}
	err = g.Wait()
	shards := pos.shards
	for i, p := range pages {
		if p == nil {
			continue
		}
		shard := shards[i].shard
		next, fresh, shardErr := r.take(ctx, pos, shard, p)
		if shardErr != nil {
			err = errors.Join(err, shardErr)
			continue // the page is read again
		}
		pos, events = next, append(events, fresh...)
		r.see(shard, p.records)
		r.iterators[shard] = p.next
		if p.ended {
			delete(r.iterators, shard)
			r.describeAt, r.await = time.Time{}, 0
		}
		full = full || p.full || p.ended
	}
	return events, pos, full, err
}

// take makes events of a page, and the position after it. It cuts the page short where the resources are too many bytes, most of
// which may not be in the records but compressed or in parts, and before a record that cannot be read now: the rest of the page is
// fetched again.
func (r *reader) take(ctx context.Context, pos *position, shard string, p *page) (*position, []*event, error) {
	var events []*event
	last, size, cut := "", 0, false
	for i := range p.records {
		var ev *event
		var err error
		if size < driver.PageBytes {
			ev, err = answer(ctx, r.b, func(ctx context.Context) (*event, error) { return r.b.change(ctx, &p.records[i]) })
		}
		if err != nil && last == "" {
			return nil, nil, err
		}
		if err != nil || size >= driver.PageBytes {
			cut = err == nil
			p.records, p.next, p.ended, p.full = p.records[:i], "", false, true
			break
		}
		if p.records[i].Dynamodb.SequenceNumber != nil {
			last = *p.records[i].Dynamodb.SequenceNumber
		}
		if ev != nil {
			ev.At.stream, ev.At.shards, ev.At.asOf, ev.At.shard = pos.stream, pos.shards, pos.asOf, shard
			events = append(events, ev)
			size += ev.Size
		}
	}
	r.fitted(len(p.records), cut)
	switch {
	case p.ended:
		pos = pos.with(shard, ended)
	case last != "":
		pos = pos.with(shard, last)
	}
	return pos, events, nil
}

// follow lists the shards when it is time to, and goes on to the heirs of those that are at their end.
func (r *reader) follow(ctx context.Context) error {
	pos := r.position()
	if r.disabled && pos.active() == 0 {
		return errStreamEnded // disabling a stream closes its shards
	}
	now := time.Now()
	if now.Before(r.describeAt) && !r.overdue(now) {
		return nil
	}
	l, err := r.describe(ctx, pos)
	if err != nil {
		return err
	}
	heirs, more, err := r.heirs(ctx, pos)
	if err != nil {
		return err
	}
	r.disabled = r.disabled || l.disabled
	r.setPosition(r.lines.prune(r.begin(pos, heirs)))
	r.describeAt = now.Add(describeEvery)
	if more || r.childless(r.position()) || r.proving() {
		r.await = min(max(2*r.await, describePause), describeMost)
		r.describeAt = now.Add(r.await)
	} else {
		r.await = 0
	}
	return nil
}

// overdue reports whether a proof takes so long that the ticks may have gone to a shard that was not listed.
func (r *reader) overdue(now time.Time) bool {
	if r.await > 0 {
		return false // the next listing is near
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proof.begun > r.proof.done && now.Sub(r.proof.began) > time.Second
}

func (p *position) active() int {
	n := 0
	for _, pl := range p.shards {
		if pl.seq != ended {
			n++
		}
	}
	return n
}

// childless reports whether a shard at its end has no child yet.
func (r *reader) childless(pos *position) bool {
	for _, pl := range pos.shards {
		if pl.seq == ended && !r.lines.hasChild(pl.shard) {
			return true
		}
	}
	return false
}
