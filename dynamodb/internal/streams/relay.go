package streams

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/wire"
)

// Relay reads the stream for subscribers in other processes.
//
// A relay keeps no state about subscribers that have left: a subscriber owns its position, and any relay continues it. The relay sends
// what the position does not contain, from its log or, if the log begins later, from the stream. It extends the log for that, so that
// many subscribers of a failed relay read the stream once.
//
// A relay that is slow, or was suspended, sends old events. They are correct, because a record and a proof are facts about the stream, and
// not about the present. The lease of a relay therefore only limits the number of readers.
type Relay struct {
	Config
	reader *reader
	log    relayLog
	extend chan struct{} // held while the log is extended
	ready  bool          // guarded by log.mu
}

// NewRelay returns a relay that does not read yet.
func NewRelay(config Config) *Relay { return &Relay{Config: config, extend: make(chan struct{}, 1)} }

// Run reads the stream until ctx ends. It calls ready when subscribers can be served.
func (r *Relay) Run(ctx context.Context, ready func()) error {
	reader := newReader(&r.Config)
	if err := reader.open(ctx); err != nil {
		return fmt.Errorf("open the stream of table %s: %w", r.Name, err)
	}
	r.reader = reader
	g, ctx := errgroup.WithContext(ctx)
	opened := make(chan struct{})
	g.Go(func() error {
		return reader.run(ctx, func(at *Position) {
			r.log.mu.Lock()
			r.log.reset(at)
			r.log.mu.Unlock()
			close(opened)
		}, r.publish)
	})
	g.Go(func() error {
		<-opened
		if err := r.awaitExactStart(ctx); err != nil {
			return err
		}
		ready()
		return nil
	})
	return g.Wait()
}

func (r *Relay) publish(events []*Event, end *Position) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if !r.ready && !r.log.start.isExact() && end.isExact() {
		r.log.reset(end) // nobody follows yet
		return
	}
	r.log.append(events, end)
}

// awaitExactStart waits until the log begins at a position with which the positions of subscribers can be compared.
func (r *Relay) awaitExactStart(ctx context.Context) error {
	for {
		if _, err := r.reader.exactPosition(ctx); err != nil {
			return err
		}
		r.log.mu.Lock()
		r.ready = r.log.start.isExact()
		ready, changed := r.ready, r.log.changeCh
		r.log.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Identity returns the store that the relay serves.
func (r *Relay) Identity() *wire.Identity { return r.identity(r.reader.stream) }

// decodeFrom decodes a subscriber's position.
func (r *Relay) decodeFrom(id *wire.Identity, b []byte) (*Position, error) {
	if !sameIdentity(id, r.Identity()) {
		return nil, ErrIdentity
	}
	if len(b) == 0 {
		return nil, nil
	}
	from, err := DecodePosition(b)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: not a position", storage.ErrInvalid)
	case from.stream != r.reader.stream:
		return nil, ErrIdentity
	case r.Clock.Now().Sub(from.asOf) > shardMemory:
		return nil, fmt.Errorf("%w: the position is older than the stream's retention of %v", storage.ErrCompacted, shardMemory)
	}
	return from, nil
}

// Page returns a page of history.
func (r *Relay) Page(ctx context.Context, in *wire.PageRequest) (*wire.PageResponse, error) {
	from, err := r.decodeFrom(in.GetIdentity(), in.GetFrom())
	if err != nil {
		return nil, err
	}
	target, err := DecodePosition(in.GetTarget())
	if err != nil || from == nil {
		return nil, fmt.Errorf("%w: not a position", storage.ErrInvalid)
	}
	filter, err := filterOf(in.GetFilter())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	limit := int(in.GetLimit())
	if events, end, more, ok := r.logPage(from, target, filter, limit); ok {
		return &wire.PageResponse{Batch: r.withTree(encodeBatch(from, events, end)), More: more}, nil
	}
	c := &backlogReader{shards: &r.reader.shards, at: from, target: target, filter: filter, iterators: map[string]string{}}
	more, err := c.read(ctx, limit)
	if err != nil {
		return nil, err
	}
	return &wire.PageResponse{Batch: r.withTree(encodeBatch(from, c.events, c.at)), More: more}, nil
}

func (r *Relay) withTree(b *wire.Batch) *wire.Batch {
	b.Tree, _ = encodeTree(r.reader.tree)
	return b
}

// logPage returns a page of history from the log, if the log has all of it.
func (r *Relay) logPage(from, target *Position, filter *driver.Filter, limit int) (events []*Event, end *Position, more, ok bool) {
	tree := r.reader.tree
	r.log.mu.Lock()
	start, batches, last := r.log.start, r.log.batches, r.log.end()
	r.log.mu.Unlock()
	if !tree.includes(from, start) || !tree.includes(last, target) {
		return nil, nil, false, false
	}
	size := 0
	end = from
	for _, b := range batches {
		for _, ev := range b.events {
			switch {
			case tree.covers(end, ev.At): // also a record that the log has twice
				continue
			case len(events) >= limit || size >= driver.PageBytes:
				return events, end, true, true
			case filter.Match(&ev.Key):
				events = append(events, ev)
				size += ev.Size
			}
			end = tree.merge(end, ev.At)
		}
		end = tree.merge(end, b.end)
	}
	return events, end, false, true
}
