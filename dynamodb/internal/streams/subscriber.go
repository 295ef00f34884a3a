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

// Relays connects to the relays of a store.
type Relays interface {
	// Connect begins a call of Follow at a relay, if possible another one than before.
	Connect(ctx context.Context) (Link, error)
	// Page calls Page at a relay.
	Page(ctx context.Context, in *wire.PageRequest) (*wire.PageResponse, error)
}

// Link is a call of Follow. Send, Recv and Close may be called concurrently. Close ends both.
type Link interface {
	Send(in *wire.FollowRequest) error
	Recv() (*wire.FollowResponse, error)
	Close()
}

// Subscriber is a Stream that a relay reads. It never reads records itself, because DynamoDB allows two readers of a shard.
//
// Its position is the position of a reader: every record after it is published. It therefore owns the position, and takes it from relay
// to relay. A relay is believed only about the stream: its records, their order in each shard, and a proof that it made for a request.
// Silence, an older position, or the loss of a connection change nothing but the time at which changes arrive.
type Subscriber struct {
	Config
	comparer
	relays Relays
	listed *Source // for positions while nothing is read

	mu  sync.Mutex
	run *subscription // the current one, or the last one; nil before the first
}

var _ Stream = (*Subscriber)(nil)

// NewSubscriber returns a subscriber without a subscription.
func NewSubscriber(config Config, relays Relays) *Subscriber {
	if config.Silence == 0 {
		config.Silence = defaultSilence
	}
	return &Subscriber{Config: config, relays: relays, listed: NewSource(config)}
}

// subscription is a run of a Subscriber.
type subscription struct {
	*Subscriber
	tree  *tree
	endCh chan struct{} // closed when the run has ended

	mu      sync.Mutex
	pos     *Position
	link    Link // nil while there is no connection
	serial  uint64
	proofs  map[uint64]chan bool // requested proofs
	moved   chan struct{}        // closed when pos changes
	wokenAt time.Time
	later   *time.Timer // requests a proof that frees baselines
}

// Run implements driver.Source.
func (s *Subscriber) Run(ctx context.Context, ready func(*Position), publish func([]*Event, *Position)) error {
	r := &subscription{Subscriber: s, tree: newTree(), endCh: make(chan struct{}), proofs: map[uint64]chan bool{}, moved: make(chan struct{})}
	defer r.end()
	good := time.Now()
	for failures := 0; ; failures++ {
		err := r.follow(ctx, func(at *Position) {
			s.mu.Lock()
			s.run = r
			s.mu.Unlock()
			s.known.Store(r.tree)
			ready(at)
		}, publish, func() { good, failures = time.Now(), 0 })
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

func (r *subscription) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.later != nil {
		r.later.Stop()
	}
	close(r.endCh)
}

func (s *Subscriber) subscription() *subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// follow receives from one relay until it fails. It calls alive after each message.
func (r *subscription) follow(ctx context.Context, ready func(*Position), publish func([]*Event, *Position), alive func()) error {
	history, err := callWithTimeout(ctx, r.Timeout, r.Table.Stream)
	if err != nil {
		return historyLost(err)
	}
	open := &wire.Open{Identity: r.identity(history)}
	at := r.position()
	if at != nil {
		if at.stream != history {
			return fmt.Errorf("%w: the table has a different stream now (it was disabled and enabled, or the table was restored)", storage.ErrCompacted)
		}
		open.Position = at.Encode()
	}
	link, err := r.relays.Connect(ctx)
	if err != nil {
		return err
	}
	defer link.Close()
	stop := context.AfterFunc(ctx, link.Close)
	defer stop()
	silence := time.AfterFunc(r.Silence, link.Close)
	defer silence.Stop()
	if err := link.Send(&wire.FollowRequest{Ask: &wire.FollowRequest_Open{Open: open}}); err != nil {
		return err
	}
	defer r.disconnect()
	for welcome := false; ; {
		in, err := link.Recv()
		if err != nil {
			return err
		}
		silence.Reset(r.Silence)
		switch answer := in.GetAnswer().(type) {
		case *wire.FollowResponse_Welcome:
			if !sameIdentity(answer.Welcome.GetIdentity(), open.GetIdentity()) {
				return ErrIdentity
			}
			if err := r.begin(answer.Welcome, at == nil, ready); err != nil {
				return err
			}
			welcome = true
			if err := r.connect(link); err != nil {
				return err
			}
		case *wire.FollowResponse_Batch:
			if !welcome {
				return errors.New("the relay sent changes before its welcome")
			}
			if err := r.receive(answer.Batch, publish); err != nil {
				return err
			}
		case *wire.FollowResponse_Proven:
			r.complete(answer.Proven)
		}
		if welcome {
			alive()
		}
	}
}

// begin applies the relay's welcome.
func (r *subscription) begin(in *wire.Welcome, first bool, ready func(*Position)) error {
	if err := r.learn(in.GetTree()); err != nil {
		return err
	}
	if !first {
		return nil
	}
	at, err := DecodePosition(in.GetPosition())
	if err != nil {
		return fmt.Errorf("decode the position of a relay: %w", err)
	}
	if at.stream != in.GetIdentity().GetHistory() {
		return ErrIdentity
	}
	r.setPosition(at)
	ready(at)
	return nil
}

// learn adds to the tree.
func (r *subscription) learn(tree []byte) error {
	if len(tree) == 0 {
		return nil
	}
	parents, err := decodeTree(tree)
	if err != nil {
		return fmt.Errorf("decode the shards of a relay: %w", err)
	}
	keep := r.position()
	if keep == nil {
		keep = &Position{}
	}
	r.tree.update(parents, keep)
	return nil
}

// receive publishes a batch. Watches skip the events that they have had from another relay.
func (r *subscription) receive(in *wire.Batch, publish func([]*Event, *Position)) error {
	if err := r.learn(in.GetTree()); err != nil {
		return err
	}
	base, events, end, err := decodeBatch(in)
	if err != nil {
		return err
	}
	at := r.position()
	if base.stream != at.stream || end.stream != at.stream {
		return ErrIdentity
	}
	end = r.tree.merge(at, end).orBeginnings(end)
	r.setPosition(end)
	publish(events, end)
	return nil
}

// position returns the subscriber's position, nil before the first welcome.
func (r *subscription) position() *Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pos
}

func (r *subscription) setPosition(p *Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pos = p
	close(r.moved)
	r.moved = make(chan struct{})
}

// connect makes a link the current one, and repeats the requests that are not answered.
func (r *subscription) connect(link Link) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link = link
	for serial := range r.proofs {
		if err := link.Send(proveRequest(serial)); err != nil {
			return err
		}
	}
	return nil
}

func (r *subscription) disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link = nil
}

// ask sends a request if there is a connection. A failed one is detected by the receiver.
func (r *subscription) ask(in *wire.FollowRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != nil {
		_ = r.link.Send(in)
	}
}

func proveRequest(serial uint64) *wire.FollowRequest {
	return &wire.FollowRequest{Ask: &wire.FollowRequest_Prove{Prove: &wire.Prove{Serial: serial}}}
}

// complete answers a requested proof.
func (r *subscription) complete(p *wire.Proven) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.proofs[p.GetSerial()]; ok {
		c <- p.GetComplete()
		delete(r.proofs, p.GetSerial())
	}
}

// prove requests a proof that begins after the call, from this relay or another one, and waits for it until a time. The relay has sent
// before its response what the proof is about.
func (r *subscription) prove(ctx context.Context, until <-chan time.Time) (proven bool, err error) {
	c := make(chan bool, 1)
	r.mu.Lock()
	r.serial++
	serial := r.serial
	r.proofs[serial] = c
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.proofs, serial)
	}()
	r.ask(proveRequest(serial))
	select {
	case proven := <-c:
		return proven, nil
	case <-until:
		return false, nil
	case <-r.endCh:
		return false, driver.ErrRunEnded
	case <-ctx.Done():
		return false, request.Inconsistent(ctx, errors.New("no relay proved its progress before the deadline"))
	}
}

// Wake implements Stream.
func (s *Subscriber) Wake() {
	r := s.subscription()
	if r == nil {
		return
	}
	r.mu.Lock()
	soon := time.Since(r.wokenAt) < s.Poll
	if !soon {
		r.wokenAt = time.Now()
	}
	r.mu.Unlock()
	if !soon {
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
	r := s.subscription()
	r.mu.Lock()
	if r.later == nil {
		r.later = time.AfterFunc(time.Minute+10*time.Second, func() {
			r.mu.Lock()
			r.later = nil
			r.mu.Unlock()
			r.ask(proveRequest(0))
		})
	}
	r.mu.Unlock()
	joined := *at
	joined.baseline = b
	return &joined
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
	return s.listed.Before(ctx)
}

// exactPosition returns a position at which history can end, as reader.exactPosition does. The subscriber's own position is used: what
// follows it, and nothing else, will be published.
func (r *subscription) exactPosition(ctx context.Context) (*Position, error) {
	for asked := false; ; asked = true {
		r.mu.Lock()
		at, moved := r.pos, r.moved
		r.mu.Unlock()
		if at.isExact() {
			return at, nil
		}
		if !asked {
			r.ask(&wire.FollowRequest{Ask: &wire.FollowRequest_Exact{Exact: &wire.Exact{}}})
		}
		select {
		case <-moved:
		case <-time.After(time.Second): // the relay may have failed
			asked = false
		case <-r.endCh:
			return nil, driver.ErrRunEnded
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
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
		return nil, nil, false, fmt.Errorf("%w: the table has a different stream now (it was disabled and enabled, or the table was restored)", storage.ErrCompacted)
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
