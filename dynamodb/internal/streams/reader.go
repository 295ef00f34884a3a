package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// reader reads the stream of the table, from its end at the time of opening.
//
// It works in rounds: each reads one page of every readable shard, and publishes the events as one batch. During activity the
// rounds follow at the interval Poll; otherwise the pauses double up to IdlePoll. A write through the same backend wakes it.
type reader struct {
	shards
	prover *prover
	kick   chan struct{}
	endCh  chan struct{} // closed when the run has ended

	goodRound atomic.Pointer[time.Time] // end of the last round without an error

	mu    sync.Mutex
	pos   *Position
	exact bool // the next round reads shards of which pos has only a time again, from their beginning

	// Used only by the goroutine of run.
	iterators      map[string]string
	answerTimes    map[string]time.Time // by shard, AWS's time of the last answer that promised more records
	failures       int                  // consecutive rounds with an error
	listAt         time.Time            // when to list the shards next
	await          time.Duration        // pause between listings while waiting for an unlisted shard
	streamDisabled bool                 // a listing showed the stream disabled
	lastGood       time.Time
}

// maxFetches limits the concurrent calls of a round.
const maxFetches = 64

func newReader(config *Config) *reader {
	r := &reader{
		shards:      shards{Config: config, tree: newTree()},
		kick:        make(chan struct{}, 1),
		endCh:       make(chan struct{}),
		iterators:   map[string]string{},
		answerTimes: map[string]time.Time{},
	}
	r.prover = newProver(config, r.wake)
	return r
}

func (r *reader) position() *Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pos
}

func (r *reader) setPosition(p *Position) {
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

// running reports whether the reader is reading.
func (r *reader) running() bool {
	select {
	case <-r.endCh:
		return false
	default:
		return true
	}
}

// exactPosition returns a position with a number, or the beginning, for each shard. The reader opens a shard at its end, which has no
// number before the first record: history that must end where the reader began cannot find that place. It waits for a proof, which gives
// each shard a number; then the reader reads the shards without a number again, from their beginning. Watches skip the records that
// they have passed.
func (r *reader) exactPosition(ctx context.Context) (*Position, error) {
	if at := r.position(); at.isExact() {
		return at, nil
	}
	if err := r.prover.wait(ctx, time.Time{}, time.Now().Add(proofTime), r.endCh); err != nil {
		return nil, err
	}
	for {
		r.prover.mu.Lock()
		round := r.prover.round
		r.prover.mu.Unlock()
		r.mu.Lock()
		at := r.pos
		r.exact = !at.isExact()
		r.mu.Unlock()
		if at.isExact() {
			return at, nil
		}
		r.wake()
		select {
		case <-round:
		case <-r.endCh:
			return nil, driver.ErrRunEnded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// takeExact reports whether shards must be read again in this round.
func (r *reader) takeExact() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	exact := r.exact
	r.exact = false
	return exact
}

// open finds the stream and its shards and starts at the end of the open ones. It retries while DynamoDB is unavailable.
func (r *reader) open(ctx context.Context) error {
	begun := time.Now()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := r.tryOpen(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, storage.ErrCompacted) || request.Classify(err) == request.Rejected || time.Since(begun) > r.Outage {
			return err
		}
		request.Sleep(ctx, pause)
	}
}

func (r *reader) tryOpen(ctx context.Context) (err error) {
	r.tree, r.iterators = newTree(), map[string]string{} // the table may have a different stream since the last attempt
	if r.stream, err = callWithTimeout(ctx, r.Timeout, r.Table.Stream); err != nil {
		return err
	}
	asOf := r.Clock.Now()
	l, err := r.list(ctx, &Position{})
	if err != nil {
		return err
	}
	pos := l.position(r.stream, asOf)
	iterators := make([]string, len(pos.shards))
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(maxFetches)
	for i, pl := range pos.shards {
		if pl.seq != shardEnd {
			g.Go(func() (err error) {
				iterators[i], err = r.latest(groupCtx, pl.shard)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, pl := range pos.shards {
		if pl.seq != shardEnd {
			r.iterators[pl.shard] = iterators[i]
		}
	}
	r.listAt, r.lastGood = time.Now().Add(listEvery), time.Now()
	r.prover.recordStart(pos.shards, asOf)
	r.setPosition(pos)
	return nil
}

// run reads until ctx ends.
func (r *reader) run(ctx context.Context, ready func(*Position), publish func([]*Event, *Position)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer r.prover.writers.Wait()
	defer cancel()
	defer close(r.endCh)
	ready(r.position())
	var timer *time.Timer
	for pause := r.Poll; ; {
		begun := time.Now()
		found, full, err := r.turn(ctx, publish)
		proving, took := r.prover.proving()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case r.failures > 0:
			pause = min(r.Poll<<min(r.failures, 16), max(maxFailurePause, r.Poll))
			if !request.Sleep(ctx, pause/2+rand.N(pause/2+1)) { // not shortened by writes
				return ctx.Err()
			}
			continue
		case full:
			continue
		case found || proving && took < proofTime:
			pause = r.Poll
		default:
			pause = min(2*pause, max(r.IdlePoll, r.Poll))
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
			pause = r.Poll
			if !request.Sleep(ctx, pause-time.Since(begun)) {
				return ctx.Err()
			}
		}
	}
}

// maxFailurePause is the longest pause after rounds with errors, such as throttled ones.
const maxFailurePause = 10 * time.Second

// turn is one round and the publication of its events. It returns an error only if the run cannot continue.
func (r *reader) turn(ctx context.Context, publish func([]*Event, *Position)) (found, full bool, err error) {
	before := r.position()
	events, after, full, err := r.poll(ctx)
	if after != before {
		r.setPosition(after)
	}
	r.prover.advance(ctx, after, r.tree, r.setPosition)
	after = r.position()
	if len(events) > 0 || after.isAfter(before) {
		publish(events, after)
	}
	if err == nil {
		err = r.follow(ctx)
	}
	r.prover.endRound()
	switch {
	case err == nil:
		r.lastGood, r.failures = time.Now(), 0
		good := r.lastGood
		r.goodRound.Store(&good)
		r.Lag.Answered()
	case ctx.Err() != nil, errors.Is(err, storage.ErrCompacted), errors.Is(err, ErrStreamEnded):
		return false, false, err
	case time.Since(r.lastGood) > r.Outage:
		return false, false, fmt.Errorf("the stream was unreachable for %v: %w", r.Outage, err)
	default:
		full = false
		r.failures++
		r.Lag.Lost(r.lastGood)
	}
	return len(events) > 0, full, nil
}

// poll reads a page of every shard that is not at its end. Events that could be read are returned even with an error.
func (r *reader) poll(ctx context.Context) (events []*Event, pos *Position, full bool, err error) {
	pos = r.position()
	if r.takeExact() {
		for _, pl := range pos.shards {
			if _, timed := sinceTime(pl.seq); timed {
				delete(r.iterators, pl.shard)
				pos = pos.with(pl.shard, "")
			}
		}
	}
	pages := make([]*page, len(pos.shards))
	var g errgroup.Group
	g.SetLimit(maxFetches)
	for i, pl := range pos.shards {
		if pl.seq == shardEnd {
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
		next, found, shardErr := r.events(ctx, pos, shard, p, r.answerTimes[shard])
		if shardErr != nil {
			err = errors.Join(err, shardErr)
			continue // the page is read again
		}
		pos, events = next, append(events, found...)
		r.prover.findTicks(shard, p.records)
		r.iterators[shard] = p.next
		if !p.shardEnded {
			r.answerTimes[shard] = p.answerTime
		} else {
			r.prover.recordEnd(shard, r.answerTimes[shard])
			delete(r.iterators, shard)
			r.listAt, r.await = time.Time{}, 0
		}
		full = full || p.full || p.shardEnded
	}
	return events, pos, full, err
}

const (
	// listEvery is the interval of listings without a reason, which detect a disabled stream.
	listEvery = 5 * time.Minute
	// listPause is the shortest pause between two listings while a shard is awaited, maxListPause the longest.
	listPause, maxListPause = 250 * time.Millisecond, 10 * time.Second
)

// ErrStreamEnded ends a run. All watches end with it.
var ErrStreamEnded = errors.New("the stream was disabled: later writes are in no history")

// follow lists the shards when it is due, and continues with the children of shards that are at their end.
func (r *reader) follow(ctx context.Context) error {
	pos := r.position()
	if r.streamDisabled && pos.active() == 0 {
		return ErrStreamEnded // disabling a stream closes its shards
	}
	now := time.Now()
	if now.Before(r.listAt) && !r.overdue() {
		return nil
	}
	l, err := r.list(ctx, pos)
	if err != nil {
		return err
	}
	next, more, err := r.next(ctx, pos)
	if err != nil {
		return err
	}
	r.streamDisabled = r.streamDisabled || l.streamDisabled
	for _, pl := range next {
		if parent := r.tree.parentOf(pl.shard); parent != "" && pl.seq == "" {
			r.prover.inherit(pl.shard, parent)
			r.answerTimes[pl.shard] = r.answerTimes[parent]
		} else {
			r.prover.recordStart([]shardPosition{pl}, pos.asOf)
		}
		pos = pos.with(pl.shard, pl.seq)
	}
	pos = r.tree.prune(pos)
	r.prover.forget(pos)
	maps.DeleteFunc(r.answerTimes, func(shard string, _ time.Time) bool { _, there := pos.get(shard); return !there })
	r.setPosition(pos)
	r.listAt = now.Add(listEvery)
	if proving, _ := r.prover.proving(); more || proving || r.childless(pos) {
		r.await = min(max(2*r.await, listPause), maxListPause)
		r.listAt = now.Add(r.await)
	} else {
		r.await = 0
	}
	return nil
}

// overdue reports whether a proof takes so long that its ticks may be in a shard that was not listed.
func (r *reader) overdue() bool {
	if r.await > 0 {
		return false // the next listing is due soon
	}
	proving, took := r.prover.proving()
	return proving && took > time.Second
}

// childless reports whether a shard at its end has no child yet.
func (r *reader) childless(pos *Position) bool {
	for _, pl := range pos.shards {
		if pl.seq == shardEnd && !r.tree.hasChild(pl.shard) {
			return true
		}
	}
	return false
}
