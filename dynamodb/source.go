package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// event is one change, as the feed knows it.
type event = driver.Event[*position]

// source reads the table's stream for the feed. There is one for each opened backend, because DynamoDB allows two readers of a
// shard only.
type source struct {
	b *handle

	mu     sync.Mutex
	live   *reader // of the current run, or the last one; nil before the first
	shards *shards // for positions where nothing is being read
}

var _ driver.Source[*position] = (*source)(nil)

// Run implements driver.Source.
func (s *source) Run(ctx context.Context, ready func(*position), publish func([]*event, *position)) error {
	r := newReader(s.b)
	if err := r.open(ctx); err != nil {
		return fmt.Errorf("open the stream of table %s: %w", s.b.table, err)
	}
	s.mu.Lock()
	s.live = r
	s.mu.Unlock()
	if err := r.run(ctx, ready, publish); err != nil {
		return fmt.Errorf("read the stream of table %s: %w", s.b.table, err)
	}
	return nil
}

func (s *source) reader() *reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live
}

func (s *source) lineage() *lineage {
	if r := s.reader(); r != nil {
		return r.lines
	}
	return newLineage()
}

// wake has the stream polled soon: something was written.
func (s *source) wake() {
	if r := s.reader(); r != nil {
		r.wake()
	}
}

// Contains implements driver.Source.
func (s *source) Contains(at *position, ev *event) bool {
	return at.joined.has(ev.Key, ev.At.count) || at.covers(s.lineage(), ev.At.shard, ev.At.seq)
}

// Advance implements driver.Source.
func (s *source) Advance(at *position, ev *event) *position { return at.merge(s.lineage(), ev.At) }

// Merge implements driver.Source. What a snapshot showed is forgotten once it is proven that no older change can come any more.
func (s *source) Merge(at, end *position) *position {
	merged := at.merge(s.lineage(), end)
	if merged.joined != nil && end.proven >= merged.joined.until {
		merged.joined.drop()
		merged.joined = nil
	}
	return merged
}

// Encode implements driver.Source.
func (*source) Encode(at *position) []byte { return at.encode() }

// Decode implements driver.Source.
func (*source) Decode(b []byte) (*position, error) {
	at, err := decodePosition(b)
	if err != nil {
		return nil, fmt.Errorf("%w: this is no cursor", storage.ErrInvalid)
	}
	return at, nil
}

// remembered is how long DynamoDB keeps the records of a stream.
const remembered = 24 * time.Hour

// History implements driver.Source.
func (s *source) History(from *position, f *driver.Filter) driver.History[*position] {
	return driver.Pages(from, func(ctx context.Context, from *position, limit int) ([]*event, *position, bool, error) {
		return s.page(ctx, from, f, limit)
	})
}

// page reads the shards from a position until it has caught up with where the feed's own reader stood at the beginning.
func (s *source) page(ctx context.Context, from *position, f *driver.Filter, limit int) ([]*event, *position, bool, error) {
	r := s.reader()
	switch {
	case r == nil:
		return nil, nil, false, errors.New("the stream is not being read")
	case from.stream != r.stream:
		return nil, nil, false, fmt.Errorf("%w: the table's stream is another one now (it was disabled and enabled, or the table was restored)", storage.ErrCompacted)
	case s.b.clock.now().Sub(from.asOf) > remembered:
		return nil, nil, false, fmt.Errorf("%w: the cursor is older than the %v that a stream remembers", storage.ErrCompacted, remembered)
	}
	w := &walk{reader: r, pos: from, target: r.position(), filter: f, iterators: map[string]string{}}
	more, err := w.read(ctx, limit)
	if err != nil {
		return nil, nil, false, err
	}
	return w.events, w.pos, more, nil
}

// shards is a listing of the stream that serves for a while: a shard that has been closed since leads to its children.
type shards struct {
	listing *listing
	stream  string
	until   time.Time // by the local clock
}

// shardsFor is how long a listing serves. DynamoDB allows ten a second for the whole account.
const shardsFor = time.Minute

// before returns a position from which all is read that is acknowledged after the call, and some that was before: the reader's, or
// where there is none, the present time in each shard. Nothing of the stream is read for it.
func (s *source) before(ctx context.Context) (*position, error) {
	if r := s.reader(); r != nil && r.running() {
		return r.position(), nil
	}
	asOf := s.b.clock.now()
	s.mu.Lock()
	known := s.shards
	s.mu.Unlock()
	if known == nil || time.Now().After(known.until) {
		stream, err := s.b.latestStream(ctx)
		if err != nil {
			return nil, err
		}
		calls := shardReader{b: s.b, stream: stream, lines: newLineage()}
		var l *listing
		_, err = s.b.call(ctx, func(func(*dynamodb.Options)) (err error) {
			l, err = calls.describe(ctx, &position{})
			return err
		})
		if err != nil {
			return nil, err
		}
		known = &shards{l, stream, time.Now().Add(shardsFor)}
		s.mu.Lock()
		s.shards = known
		s.mu.Unlock()
	}
	at := &position{stream: known.stream, asOf: asOf}
	for _, pl := range known.listing.open(asOf) {
		at = at.with(pl.shard, pl.seq)
	}
	return at, nil
}
