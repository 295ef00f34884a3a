package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/wire"
)

// Relays connects to the relays of a store.
type Relays interface {
	// Connect begins a call of Follow at a relay, if possible another one than before.
	Connect(ctx context.Context) (Link, error)
	// Page calls Page at a relay.
	Page(ctx context.Context, in *wire.PageRequest) (*wire.PageResponse, error)
}

// subscription is a run of a Subscriber. It follows one relay after another.
type subscription struct {
	*Config
	requests
	relays Relays
	tree   *tree

	mu    sync.Mutex
	pos   *Position
	posCh chan struct{} // closed when pos changes
}

func newSubscription(config *Config, relays Relays) *subscription {
	return &subscription{
		Config: config, relays: relays, tree: newTree(), posCh: make(chan struct{}),
		requests: requests{endCh: make(chan struct{}), proofs: map[uint64]chan bool{}},
	}
}

// follow receives from one relay until it fails. It calls alive after each message other than the welcome. Before the welcome a relay sends
// such messages while it reads what the subscriber lacks.
func (r *subscription) follow(ctx context.Context, ready func(*Position), publish func([]*Event, *Position), alive func()) error {
	history, err := callWithTimeout(ctx, r.Timeout, r.Table.Stream)
	if err != nil {
		return historyLost(err)
	}
	open := &wire.Open{Identity: r.identity(history)}
	at := r.position()
	if at != nil {
		if at.stream != history {
			return errOtherStream()
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
		if _, reason := link.Recv(); reason != nil {
			return reason // of a call that the relay has ended, gRPC tells the reason only to the receiver
		}
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
			if err := r.begin(answer.Welcome, at == nil && !welcome, ready); err != nil {
				return err
			}
			welcome = true
			r.connect(link)
			continue // a relay that only welcomes is none
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
		alive()
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
	close(r.posCh)
	r.posCh = make(chan struct{})
}

// exactPosition returns a position at which history can end, as reader.exactPosition does. It returns the subscriber's own
// position, because the subscriber publishes exactly the changes after it.
func (r *subscription) exactPosition(ctx context.Context) (*Position, error) {
	for asked := false; ; {
		r.mu.Lock()
		at, moved := r.pos, r.posCh
		r.mu.Unlock()
		if at.isExact() {
			return at, nil
		}
		if !asked {
			r.ask(&wire.FollowRequest{Ask: &wire.FollowRequest_Exact{Exact: &wire.Exact{}}})
			asked = true
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
