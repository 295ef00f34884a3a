package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// Source reads the table's stream for the feed. An opened backend has one, because DynamoDB allows only two readers of a shard.
type Source struct {
	Config
	comparer

	mu      sync.Mutex
	live    *reader        // of the current run, or the last one; nil before the first
	listing *cachedListing // for positions while no reader is running
}

var _ Stream = (*Source)(nil)

// NewSource returns a source that is not reading yet.
func NewSource(config Config) *Source { return &Source{Config: config} }

// Run implements driver.Source.
func (s *Source) Run(ctx context.Context, ready func(*Position), publish func([]*Event, *Position)) error {
	r := newReader(&s.Config)
	defer s.Lag.Reset()
	if err := r.open(ctx); err != nil {
		return fmt.Errorf("open the stream of table %s: %w", s.Name, err)
	}
	s.mu.Lock()
	s.live = r
	s.mu.Unlock()
	s.known.Store(r.tree)
	if err := r.run(ctx, ready, publish); err != nil {
		return fmt.Errorf("read the stream of table %s: %w", s.Name, err)
	}
	return nil
}

func (s *Source) reader() *reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live
}

// Wake makes the reader poll soon, because the handle has written.
func (s *Source) Wake() {
	if r := s.reader(); r != nil {
		r.wake()
	}
}

// History implements driver.Source.
func (s *Source) History(from *Position, f *driver.Filter) driver.History[*Position] {
	return driver.Pages(from, func(ctx context.Context, from *Position, limit int) ([]*Event, *Position, bool, error) {
		return s.page(ctx, from, f, limit)
	})
}

// page reads the shards from a position until it has reached the position that the feed's own reader had at the start.
func (s *Source) page(ctx context.Context, from *Position, f *driver.Filter, limit int) ([]*Event, *Position, bool, error) {
	r := s.reader()
	switch {
	case r == nil:
		return nil, nil, false, errors.New("the stream has no reader")
	case from.stream != r.stream:
		return nil, nil, false, errOtherStream()
	}
	target, err := r.exactPosition(ctx)
	if err == nil && s.Clock.Now().Sub(from.asOf) > shardMemory {
		err = fmt.Errorf("%w: the cursor is older than the stream's retention of %v", storage.ErrCompacted, shardMemory)
	}
	if err != nil {
		return nil, nil, false, err
	}
	c := &backlogReader{shards: &r.shards, at: from, target: target, filter: f, iterators: map[string]string{}}
	more, err := c.read(ctx, limit)
	if err != nil {
		return nil, nil, false, err
	}
	return c.events, c.at, more, nil
}

// BeforeScan returns a position of the reader for a scan that begins after the call. It waits a moment for a proof that began after
// called, by the local clock. With a proof, the position includes everything that was acknowledged before called, so that a watch which
// resumes from it repeats nothing older. Use it only during a run.
func (s *Source) BeforeScan(ctx context.Context, called time.Time) (*Position, error) {
	r := s.reader()
	limit := proofTime
	if driver.NeedsExactCursor(ctx) {
		limit = exactProofTime
	}
	if err := r.prover.wait(ctx, called, called.Add(limit), r.endCh); err != nil {
		return nil, err
	}
	return r.position(), nil
}

// AwaitEnd waits until the run has published every change of a store that nobody changes any more. It returns false if the proof gives up. A
// change is published before the proof is complete, because a shard returns its records in the order of the acknowledgments. AWS
// documents this order only for the records of one key. Use AwaitEnd only during a run.
func (s *Source) AwaitEnd(ctx context.Context) (proven bool, err error) {
	r := s.reader()
	proven, err = r.prover.await(ctx, r.prover.requestProof(), nil, r.endCh)
	if proven {
		err = r.prover.awaitRound(ctx, r.endCh)
	}
	return proven, err
}

// Join returns the position of a snapshot that was read after at and returned the baseline. The source owns the baseline from then
// on.
func (s *Source) Join(at *Position, b *Baseline) *Position {
	b.until, b.scanEnded = s.reader().prover.requestProof(), s.Clock.Now()
	joined := *at
	joined.baseline = b
	return &joined
}

// cachedListing is a listing of the stream that positions use until it expires. If a shard has been closed since, it leads to its children.
type cachedListing struct {
	listing *listing
	stream  string
	until   time.Time // by the local clock
}

// listedFor is how long a listing is reused. DynamoDB allows ten listings a second for the whole account.
const listedFor = time.Minute

// Before returns a position before everything that is acknowledged after the call: the reader's, or without a reader the present
// time in each shard. Changes acknowledged before the call may follow the position, too. Before reads no records.
func (s *Source) Before(ctx context.Context) (*Position, error) {
	if r := s.reader(); r != nil && r.running() {
		return r.position(), nil
	}
	asOf := s.Clock.Now()
	s.mu.Lock()
	known := s.listing
	s.mu.Unlock()
	if known == nil || time.Now().After(known.until) {
		stream, err := s.Table.Stream(ctx)
		if err != nil {
			return nil, err
		}
		shards := shards{Config: &s.Config, stream: stream, tree: newTree()}
		var l *listing
		_, err = request.Retry(ctx, s.Clock, func(func(*dynamodb.Options)) (err error) {
			l, err = shards.list(ctx, &Position{})
			return err
		})
		if err != nil {
			return nil, err
		}
		known = &cachedListing{l, stream, time.Now().Add(listedFor)}
		s.mu.Lock()
		s.listing = known
		s.mu.Unlock()
	}
	return known.listing.position(known.stream, asOf), nil
}
