package relay

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage/dynamodb/internal/relays"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
	"github.com/ashlar-dev/storage/internal/wire"
	"github.com/ashlar-dev/storage/telemetry"
)

// node connects a handle to the relays of its store.
type node struct {
	host      relays.Host
	process   string
	directory *directory
	peers     *connections
	turn      atomic.Int64
	kick      chan struct{}                 // makes the candidate look for relays
	local     atomic.Pointer[streams.Relay] // while the handle reads the stream

	encourageTime atomic.Int64 // time of the last encourage, in nanoseconds
	subscriptions *telemetry.Series
}

// errNoPeer is returned while no relay is published.
var errNoPeer = errors.New("no process is a relay of the store")

// Connect implements streams.Relays. Consecutive calls use the relays in turn.
func (n *node) Connect(ctx context.Context) (streams.Link, error) {
	turn := int(n.turn.Add(1))
	local := n.local.Load()
	if local != nil && turn%2 == 1 {
		return newLocalLink(local), nil
	}
	all, err := n.relays(ctx)
	switch {
	case err == nil:
	case local != nil:
		return newLocalLink(local), nil
	default:
		return nil, err
	}
	chosen := all[turn%len(all)]
	client, err := n.peers.to(chosen.peer())
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	call, err := client.Follow(life)
	stop()
	if err != nil {
		cancel()
		n.encourage(ctx)
		return nil, errorOf(err)
	}
	n.subscriptions.Add(ctx, 1)
	n.host.Recorder.Logger().Info("the watches receive changes from a relay", "address", chosen.address)
	return &link{call: call, cancel: cancel, onRefusal: func() { n.encourage(life) }}, nil
}

// relays returns the published relays other than this process, in the order of their names, at least one. Without one, it probes the
// candidates, which may need it to become a relay.
func (n *node) relays(ctx context.Context) ([]*record, error) {
	ctx, cancel := context.WithTimeout(ctx, n.host.Timeout)
	defer cancel()
	all, err := n.directory.list(ctx, relayType)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r *record) bool { return r.process == n.process })
	peers := make([]peer, len(all))
	for i, r := range all {
		peers[i] = r.peer()
	}
	n.peers.keep(peers)
	if len(all) == 0 {
		n.encourage(ctx)
		return nil, errNoPeer
	}
	return all, nil
}

// encourage makes the candidates look for a missing relay. Hundreds of processes miss it at the same time, so each one asks rarely.
func (n *node) encourage(ctx context.Context) {
	now, last := time.Now().UnixNano(), n.encourageTime.Load()
	if now-last < int64(n.host.TTL/6) || !n.encourageTime.CompareAndSwap(last, now) {
		return
	}
	select {
	case n.kick <- struct{}{}:
	default:
	}
	all, err := n.directory.list(ctx, candidateType)
	if err != nil {
		return
	}
	n.peers.probeAll(ctx, all, true)
}

// Page implements streams.Relays.
func (n *node) Page(ctx context.Context, in *wire.PageRequest) (*wire.PageResponse, error) {
	if r := n.local.Load(); r != nil {
		return r.Page(ctx, in)
	}
	all, err := n.relays(ctx)
	if err != nil {
		return nil, err
	}
	turn := int(n.turn.Load())
	for i := range all { // first the relay of the last Connect
		var out *wire.PageResponse
		if out, err = n.page(ctx, all[(turn+i)%len(all)], in); err == nil {
			return out, nil
		}
	}
	return nil, err
}

// pageTimeout bounds a page of one relay. It may have been suspended.
const pageTimeout = 10 * time.Second

func (n *node) page(ctx context.Context, r *record, in *wire.PageRequest) (*wire.PageResponse, error) {
	client, err := n.peers.to(r.peer())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	out, err := client.Page(ctx, in)
	return out, errorOf(err)
}
