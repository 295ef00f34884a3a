package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/wire"
)

// follower is a subscription at a relay.
type follower struct {
	*Relay
	send     func(*wire.FollowResponse) error
	next     int         // number of the next batch
	sentPos  *Position   // the subscriber's position
	overlap  *Position   // at the start; events that it contains are not sent from the batches before overlapEnd
	end      int         // overlapEnd
	proofs   chan *proof // complete or abandoned
	treeSent uint64      // changes of the tree that were sent
	aliveAt  *time.Ticker
}

// proof is the response to a subscriber's request for a proof. It is sent after the batches before number after.
type proof struct {
	*wire.Proven
	after int
}

// errSlowSubscriber ends the subscription of a subscriber that receives too slowly. It may subscribe again: its position is then read from the
// stream.
var errSlowSubscriber = errors.New("the subscriber has fallen behind the relay's log")

// Follow serves a subscriber until ctx, the subscription or the relay ends.
func (r *Relay) Follow(ctx context.Context, open *wire.Open, recv func() (*wire.FollowRequest, error), send func(*wire.FollowResponse) error) error {
	from, err := r.decodeFrom(open.GetIdentity(), open.GetPosition())
	if err != nil {
		return err
	}
	f := &follower{Relay: r, send: send, proofs: make(chan *proof), aliveAt: time.NewTicker(r.Silence / 5)}
	defer f.aliveAt.Stop()
	if err := f.join(ctx, from); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(f.receive(ctx, cancel, recv)) }() // recv returns after Follow
	return f.stream(ctx)
}

// keepAlive calls a function that sends nothing, and sends messages without content meanwhile.
func (f *follower) keepAlive(call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	for {
		select {
		case err := <-done:
			return err
		case <-f.aliveAt.C:
			if err := f.sendAlive(); err != nil {
				return err
			}
		}
	}
}

// join finds the first batch of a subscriber, and welcomes it.
func (f *follower) join(ctx context.Context, from *Position) error {
	if from != nil {
		if err := f.keepAlive(func() error { return f.extendTo(ctx, from) }); err != nil {
			return err
		}
	}
	f.log.mu.Lock()
	inLog := from != nil && f.reader.tree.includes(from, f.log.start)
	f.next, f.end = f.log.next(), f.log.next()
	f.sentPos, f.overlap = f.log.end(), from
	if inLog {
		f.next = f.log.first
	}
	if from != nil {
		f.sentPos = from
	}
	f.log.mu.Unlock()
	tree, changes := encodeTree(f.reader.tree)
	f.treeSent = changes
	err := f.send(&wire.FollowResponse{Answer: &wire.FollowResponse_Welcome{Welcome: &wire.Welcome{
		Identity: f.Identity(), Position: f.sentPos.Encode(), Tree: tree,
	}}})
	if err != nil || from == nil || inLog {
		return err
	}
	return f.catchUp(ctx, from)
}

// extendTo extends the log to begin at a position or before, if the log is not full.
func (r *Relay) extendTo(ctx context.Context, from *Position) error {
	select {
	case r.extend <- struct{}{}:
		defer func() { <-r.extend }()
	case <-ctx.Done():
		return ctx.Err()
	}
	r.log.mu.Lock()
	start, events, bytes := r.log.start, r.log.events, r.log.bytes
	r.log.mu.Unlock()
	if r.reader.tree.includes(from, start) || !start.isExact() {
		return nil
	}
	c := &backlogReader{shards: &r.reader.shards, at: from, target: start, filter: &everything, iterators: map[string]string{}}
	for more := true; more; {
		if len(c.events)+events >= maxLogEvents || bytes >= maxLogBytes {
			return nil
		}
		c.size = 0 // of the page
		var err error
		if more, err = c.read(ctx, len(c.events)+maxRecords); err != nil {
			return err
		}
		bytes += c.size
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if !r.reader.tree.includes(from, r.log.start) {
		r.log.prepend(from, start, c.events)
	}
	return nil
}

// everything selects all resources.
var everything = driver.Filter{Group: "*", Kind: "*", Partition: "*", Namespace: "*"}

// catchUp sends the history from a position up to the log's end at the time of join.
func (f *follower) catchUp(ctx context.Context, from *Position) error {
	target, err := f.reader.exactPosition(ctx)
	if err != nil {
		return err
	}
	c := &backlogReader{shards: &f.reader.shards, at: from, target: target, filter: &everything, iterators: map[string]string{}}
	for more := true; more; {
		base := c.at
		c.events, c.size = nil, 0
		err := f.keepAlive(func() (err error) {
			more, err = c.read(ctx, maxRecords)
			return err
		})
		if err != nil {
			return err
		}
		if err := f.sendBatch(encodeBatch(base, c.events, c.at)); err != nil {
			return err
		}
	}
	return nil
}

// maxRequests is the number of requests of a subscriber that are served at the same time. Its further requests wait in the connection.
const maxRequests = 64

// receive serves the requests of the subscriber.
func (f *follower) receive(ctx context.Context, cancel context.CancelCauseFunc, recv func() (*wire.FollowRequest, error)) error {
	var serving errgroup.Group
	serving.SetLimit(maxRequests)
	serve := func(request func() error) {
		serving.Go(func() error {
			if err := request(); err != nil {
				cancel(err)
			}
			return nil
		})
	}
	for {
		in, err := recv()
		if err != nil {
			return err
		}
		switch ask := in.GetAsk().(type) {
		case *wire.FollowRequest_Wake:
			f.reader.wake()
		case *wire.FollowRequest_Exact:
			serve(func() error {
				_, err := f.reader.exactPosition(ctx)
				return err
			})
		case *wire.FollowRequest_Prove:
			number := f.reader.prover.requestProof()
			serve(func() error { return f.prove(ctx, number, ask.Prove.GetSerial()) })
		}
	}
}

// prove waits for a proof.
func (f *follower) prove(ctx context.Context, number, serial uint64) error {
	prover, stopped := f.reader.prover, f.reader.endCh
	complete, err := prover.await(ctx, number, nil, stopped)
	if complete {
		err = prover.awaitRound(ctx, stopped)
	}
	if err != nil {
		return err
	}
	f.log.mu.Lock()
	after := f.log.next()
	f.log.mu.Unlock()
	select {
	case f.proofs <- &proof{&wire.Proven{Serial: serial, Complete: complete}, after}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stream sends batches and proofs.
func (f *follower) stream(ctx context.Context) error {
	var waiting []*proof
	for {
		b, changed, ok := f.log.batch(f.next)
		switch {
		case !ok:
			return errSlowSubscriber
		case b != nil:
			if err := f.sendBatch(f.without(b)); err != nil {
				return err
			}
			f.next++
		}
		for len(waiting) > 0 && waiting[0].after <= f.next {
			if err := f.send(&wire.FollowResponse{Answer: &wire.FollowResponse_Proven{Proven: waiting[0].Proven}}); err != nil {
				return err
			}
			waiting = waiting[1:]
		}
		if b != nil {
			continue
		}
		select {
		case p := <-f.proofs:
			waiting = append(waiting, p)
		case <-changed:
		case <-f.aliveAt.C:
			if err := f.sendAlive(); err != nil {
				return err
			}
		case <-f.reader.endCh:
			return driver.ErrRunEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// without returns the message of a batch without the events that the subscriber had when it subscribed.
func (f *follower) without(b *relayBatch) *wire.Batch {
	if f.overlap == nil || f.next >= f.end {
		return b.message
	}
	var events []*Event
	for _, ev := range b.events {
		if !f.reader.tree.covers(f.overlap, ev.At) {
			events = append(events, ev)
		}
	}
	if len(events) == len(b.events) {
		return b.message
	}
	return encodeBatch(b.base, events, b.end)
}

// sendBatch sends a batch, with the tree if it has changed.
func (f *follower) sendBatch(b *wire.Batch) error {
	if changes := f.reader.tree.changeCount(); changes != f.treeSent {
		b = &wire.Batch{Base: b.GetBase(), Events: b.GetEvents(), End: b.GetEnd()}
		b.Tree, f.treeSent = encodeTree(f.reader.tree)
	}
	return f.send(&wire.FollowResponse{Answer: &wire.FollowResponse_Batch{Batch: b}})
}

// sendAlive sends a message without content while the stream is read successfully. Without such messages, subscribers try
// another relay.
func (f *follower) sendAlive() error {
	good := f.reader.goodRound.Load()
	if good == nil || time.Since(*good) > max(f.Silence, 3*f.IdlePoll) {
		return nil
	}
	if err := f.send(&wire.FollowResponse{Answer: &wire.FollowResponse_Alive{Alive: &wire.Alive{}}}); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}
