package streams

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/internal/wire"
)

// Subscriber is a Stream that a relay reads. It never reads records itself, because DynamoDB allows two readers of a shard.
//
// Its position is the position of a reader: every record after it is published. It therefore owns the position, and takes it from relay
// to relay. A relay is believed only about the stream: its records, their order in each shard, and a proof that it made for a request.
// Silence, an older position, or the loss of a connection change nothing but the time at which changes arrive.
type Subscriber struct {
	Config
	comparer
	relays     Relays
	idleSource *Source // for positions while nothing is read

	mu         sync.Mutex
	run        *subscription // the current one, or the last one; nil before the first
	wokenAt    time.Time
	proofTimer *time.Timer // requests a proof that frees baselines; nil: none is due
}

var _ Stream = (*Subscriber)(nil)

// NewSubscriber returns a subscriber without a subscription.
func NewSubscriber(config Config, relays Relays) *Subscriber {
	return &Subscriber{Config: config, relays: relays, idleSource: NewSource(config)}
}

// Run implements driver.Source.
func (s *Subscriber) Run(ctx context.Context, ready func(*Position), publish func([]*Event, *Position)) error {
	r := newSubscription(&s.Config, s.relays)
	defer close(r.endCh)
	defer s.Lag.Reset()
	good := time.Now()
	for failures := 0; ; failures++ {
		err := r.follow(ctx, func(at *Position) {
			s.mu.Lock()
			s.run = r
			s.mu.Unlock()
			s.known.Store(r.tree)
			ready(at)
		}, publish, func() {
			good, failures = time.Now(), 0
			s.Lag.Answered()
		})
		s.Lag.Lost(good)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, storage.ErrCompacted):
			return fmt.Errorf("follow the stream of table %s: %w", s.Name, err)
		case time.Since(good) > s.Outage:
			return fmt.Errorf("no relay of table %s sent changes for %v: %w", s.Name, s.Outage, err)
		}
		pause := min(20*time.Millisecond<<min(failures, 6), time.Second)
		request.Sleep(ctx, pause/2+rand.N(pause/2+1))
	}
}

func (s *Subscriber) subscription() *subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// Wake implements Stream.
func (s *Subscriber) Wake() {
	s.mu.Lock()
	r, soon := s.run, time.Since(s.wokenAt) < s.Poll
	if !soon {
		s.wokenAt = time.Now()
	}
	s.mu.Unlock()
	if r != nil && !soon {
		r.ask(&wire.FollowRequest{Ask: &wire.FollowRequest_Wake{Wake: &wire.Wake{}}})
	}
}

// BeforeScan implements Stream.
func (s *Subscriber) BeforeScan(ctx context.Context, called time.Time) (*Position, error) {
	r := s.subscription()
	limit := proofTime
	if driver.NeedsExactCursor(ctx) {
		limit = exactProofTime
	}
	timer := time.NewTimer(time.Until(called.Add(limit)))
	defer timer.Stop()
	if _, err := r.prove(ctx, timer.C); err != nil {
		return nil, err
	}
	return r.position(), nil
}

// AwaitEnd implements Stream.
func (s *Subscriber) AwaitEnd(ctx context.Context) (proven bool, err error) {
	return s.subscription().prove(ctx, nil)
}

// Join implements Stream. The numbers of proofs of different relays are not comparable, so only the time of a proof frees the baseline.
func (s *Subscriber) Join(at *Position, b *Baseline) *Position {
	b.until, b.scanEnded = math.MaxUint64, s.Clock.Now()
	s.mu.Lock()
	if s.proofTimer == nil {
		s.proofTimer = time.AfterFunc(time.Minute+10*time.Second, s.startProof)
	}
	s.mu.Unlock()
	joined := *at
	joined.baseline = b
	return &joined
}

// startProof requests a proof without waiting for it.
func (s *Subscriber) startProof() {
	s.mu.Lock()
	s.proofTimer = nil
	r := s.run
	s.mu.Unlock()
	r.ask(proveRequest(0))
}

// Before implements Stream.
func (s *Subscriber) Before(ctx context.Context) (*Position, error) {
	if r := s.subscription(); r != nil {
		select {
		case <-r.endCh:
		default:
			return r.position(), nil
		}
	}
	return s.idleSource.Before(ctx)
}

// History implements driver.Source.
func (s *Subscriber) History(from *Position, f *driver.Filter) driver.History[*Position] {
	return driver.Pages(from, func(ctx context.Context, from *Position, limit int) ([]*Event, *Position, bool, error) {
		return s.page(ctx, from, f, limit)
	})
}

// page requests the page of history from a position to the one that the subscriber had during the call.
func (s *Subscriber) page(ctx context.Context, from *Position, f *driver.Filter, limit int) ([]*Event, *Position, bool, error) {
	r := s.subscription()
	if r == nil {
		return nil, nil, false, errors.New("the stream has no reader")
	}
	target, err := r.exactPosition(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	if from.stream != target.stream {
		return nil, nil, false, errOtherStream()
	}
	out, err := s.relays.Page(ctx, &wire.PageRequest{
		Identity: s.identity(from.stream), From: from.Encode(), Target: target.Encode(), Filter: filterParts(f), Limit: uint32(limit),
	})
	if err != nil {
		return nil, nil, false, err
	}
	if err := r.learn(out.GetBatch().GetTree()); err != nil {
		return nil, nil, false, err
	}
	_, events, end, err := decodeBatch(out.GetBatch())
	if err != nil {
		return nil, nil, false, err
	}
	kept := events[:0]
	for _, ev := range events {
		if f.Match(&ev.Key) && !from.baseline.has(ev.Key, ev.At.count) {
			kept = append(kept, ev)
		}
	}
	end.baseline = from.baseline
	return kept, end, out.GetMore(), nil
}
