package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
)

// reader follows the stream of the table, from its end at the moment of its opening.
//
// It goes in rounds: each reads one page of every shard that it may read, and publishes what it found as one batch. While
// something happens the rounds follow each other at the interval Poll; in quiet times the pauses double up to IdlePoll. A write
// through the same backend wakes it.
type reader struct {
	shardReader
	kick    chan struct{}
	stopped chan struct{} // closed when the run is over

	mu       sync.Mutex
	pos      *position
	begun    uint64        // rounds
	finished uint64        // rounds, with every shard read
	round    chan struct{} // closed when a round ends

	// Of the goroutine that runs.
	iterators   map[string]string
	caught      map[string]time.Time // changes in the shard older than this have been read
	describeAt  time.Time            // when to list the shards next
	await       time.Duration        // pause between listings while a shard at its end has no children yet
	disabled    int                  // quiet rounds since the stream was seen disabled
	lastGood    time.Time
	lastPublish time.Time
}

const (
	// describeEvery is how often the shards are listed without a reason, so that a stream that was disabled is noticed.
	describeEvery = 5 * time.Minute
	// describePause is the least time between two listings while children of a closed shard are awaited.
	describePause = 250 * time.Millisecond
	// delay bounds how late a record may appear in the stream, for what depends on having seen all of a time.
	delay = time.Minute
	// skew is how far the clocks of this machine and of DynamoDB may differ, for places given by time. The emulator rounds the
	// time of a record down to the minute.
	skew = 2 * time.Minute
	// maxFetches bounds the calls of one round that are under way at once.
	maxFetches = 16
)

func newReader(b *Backend) *reader {
	return &reader{
		shardReader: shardReader{b: b, lines: newLineage()},
		kick:        make(chan struct{}, 1),
		stopped:     make(chan struct{}),
		round:       make(chan struct{}),
		iterators:   map[string]string{},
		caught:      map[string]time.Time{},
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

// sync waits until a round that began after the call has read every shard.
func (r *reader) sync(ctx context.Context) error {
	r.mu.Lock()
	wanted := r.begun + 1
	r.mu.Unlock()
	r.wake()
	for {
		r.mu.Lock()
		finished, round := r.finished, r.round
		r.mu.Unlock()
		if finished >= wanted {
			return nil
		}
		select {
		case <-round:
		case <-r.stopped:
			return errors.New("the stream is no longer being read")
		case <-ctx.Done():
			return inconsistent(ctx, errors.New("the stream of changes does not answer"))
		}
	}
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
	if r.stream, err = r.b.latestStream(ctx); err != nil {
		return err
	}
	now := time.Now()
	l, err := r.describe(ctx, &position{})
	if err != nil {
		return err
	}
	parent := map[string]bool{}
	for _, p := range l.parents {
		parent[p] = true
	}
	pos := &position{stream: r.stream, asOf: now}
	for shard := range l.parents {
		switch {
		case l.closed[shard] && parent[shard], openForebear(l, shard):
		case l.closed[shard]:
			pos = pos.with(shard, ended)
		default:
			if r.iterators[shard], err = r.latest(ctx, shard); err != nil {
				return err
			}
			pos = pos.with(shard, since(now.Add(-skew)))
		}
	}
	r.describeAt, r.lastGood = now.Add(describeEvery), time.Now()
	r.setPosition(pos)
	return nil
}

// openForebear tells whether a shard is listed beside a forebear that is still open: it is read after that one.
func openForebear(l *listing, shard string) bool {
	for p, listed := l.parents[shard], true; listed && p != ""; {
		if _, listed = l.parents[p]; listed && !l.closed[p] {
			return true
		}
		p = l.parents[p]
	}
	return false
}

// run reads until ctx is over.
func (r *reader) run(ctx context.Context, ready func(*position), publish func([]*event, *position)) error {
	defer close(r.stopped)
	if err := r.anchor(ctx); err != nil {
		return err
	}
	r.lastPublish = time.Now()
	ready(r.position())
	var timer *time.Timer
	for pause := r.b.opts.Poll; ; {
		begun := time.Now()
		found, full, err := r.turn(ctx, publish)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case full:
			continue
		case found:
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

// turn is one round, with what is published of it. It returns an error only where there is no going on.
func (r *reader) turn(ctx context.Context, publish func([]*event, *position)) (found, full bool, err error) {
	r.mu.Lock()
	r.begun++
	r.mu.Unlock()
	before := r.position()
	events, after, full, err := r.poll(ctx)
	if after != before {
		r.setPosition(after)
	}
	if len(events) > 0 || after.moved(before) || time.Since(r.lastPublish) > delay/2 {
		r.lastPublish = time.Now()
		publish(events, after)
	}
	if err == nil {
		err = r.follow(ctx, len(events) == 0 && !full)
	}
	r.endRound(err == nil)
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
	return len(p.shards) != len(from.shards) || !p.within(from)
}

func (r *reader) endRound(good bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if good {
		r.finished = r.begun
	}
	close(r.round)
	r.round = make(chan struct{})
}

// poll reads a page of every shard that is not at its end. What could be read counts, also beside an error.
func (r *reader) poll(ctx context.Context) (events []*event, pos *position, full bool, err error) {
	begun := time.Now()
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
		next, fresh, shardErr := r.take(ctx, pos, shards[i].shard, p)
		if shardErr != nil {
			err = errors.Join(err, shardErr)
			continue // the page is read again
		}
		pos, events = next, append(events, fresh...)
		r.note(shards[i].shard, p, begun)
		full = full || len(p.records) > 0 && len(p.records) >= 1000 || p.ended
	}
	if err == nil {
		end := *pos
		end.asOf, end.clean = begun, r.clean(pos, begun)
		pos = &end
	}
	return events, pos, full, err
}

// take makes events of a page, and the position after it.
func (r *reader) take(ctx context.Context, pos *position, shard string, p *page) (*position, []*event, error) {
	var events []*event
	last := ""
	for i := range p.records {
		ev, err := r.b.change(ctx, &p.records[i])
		if err != nil {
			return nil, nil, err
		}
		if p.records[i].Dynamodb.SequenceNumber != nil {
			last = *p.records[i].Dynamodb.SequenceNumber
		}
		if ev != nil {
			ev.At.stream, ev.At.shards, ev.At.asOf, ev.At.shard = pos.stream, pos.shards, pos.asOf, shard
			events = append(events, ev)
		}
	}
	switch {
	case p.ended:
		pos = pos.with(shard, ended)
	case last != "":
		pos = pos.with(shard, last)
	}
	return pos, events, nil
}

// note keeps what is needed for the next page of a shard.
func (r *reader) note(shard string, p *page, begun time.Time) {
	if p.ended {
		delete(r.iterators, shard)
		delete(r.caught, shard)
		r.describeAt = time.Time{}
		return
	}
	r.iterators[shard] = p.next
	if n := len(p.records); n == 0 {
		r.caught[shard] = begun.Add(-delay)
	} else {
		r.caught[shard] = created(&p.records[n-1]).Add(-delay)
	}
}

// clean is the time before which everything has been read.
func (r *reader) clean(pos *position, begun time.Time) time.Time {
	clean := begun.Add(-delay)
	for _, pl := range pos.shards {
		if pl.seq == ended {
			continue
		}
		if t := r.caught[pl.shard]; t.Before(clean) {
			clean = t
		}
	}
	return clean
}

// follow lists the shards when it is time to, and goes on to the heirs of those that are at their end.
func (r *reader) follow(ctx context.Context, quiet bool) error {
	pos := r.position()
	if r.disabled > 0 {
		if quiet {
			r.disabled++
		}
		if r.disabled > 3 || pos.active() == 0 {
			return errStreamEnded
		}
	}
	now := time.Now()
	if now.Before(r.describeAt) {
		return nil
	}
	l, err := r.describe(ctx, pos)
	if err != nil {
		return err
	}
	for _, heir := range r.lines.heirs(pos) {
		pos = pos.with(heir, "")
	}
	r.setPosition(r.lines.prune(pos, l.parents))
	if l.disabled && r.disabled == 0 {
		r.disabled = 1
	}
	r.describeAt = now.Add(describeEvery)
	if r.childless(pos, l) {
		r.await = min(max(2*r.await, describePause), describeEvery)
		r.describeAt = now.Add(r.await)
	} else {
		r.await = 0
	}
	return nil
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

// childless tells whether a shard at its end has no children listed yet.
func (r *reader) childless(pos *position, l *listing) bool {
	parent := map[string]bool{}
	for _, p := range l.parents {
		parent[p] = true
	}
	for _, pl := range pos.shards {
		if _, listed := l.parents[pl.shard]; listed && pl.seq == ended && !parent[pl.shard] {
			return true
		}
	}
	return false
}
