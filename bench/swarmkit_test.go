package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	swarm "github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state"
	peers "github.com/moby/swarmkit/v2/manager/state/store"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

type thing = typed.Object[*wrapperspb.BytesValue]

var things = tables.NewTable[*wrapperspb.BytesValue](&resourcepb.Type{Group: "bench", GroupVersion: "v1", Kind: "Thing"})

// BenchmarkStore compares package tables over memory with SwarmKit's MemoryStore without its Raft log. Both contain the same number
// of objects of the same size.
func BenchmarkStore(b *testing.B) { once(b, func() { swarmkit(b) }) }

func swarmkit(b *testing.B) {
	n := scaled(10_240)
	ctx := context.Background()
	name := func(i int) string { return fmt.Sprintf("%03d-%03d", i*7919%n/1000, i*7919%n%1000) }
	peer := peers.NewMemoryStore(nil)
	b.Cleanup(func() { peer.Close() })
	backend := inmem.New(nil)
	b.Cleanup(func() { backend.Close() })
	s := must(tables.Open(ctx, backend, things))
	b.Cleanup(func() { s.Close() })
	for i := range n {
		if err := peer.Update(func(tx peers.Tx) error {
			return peers.CreateNode(tx, &swarm.Node{ID: name(i), Spec: swarm.NodeSpec{Annotations: swarm.Annotations{
				Name: name(i), Labels: map[string]string{"value": string(payload(250)), "other": string(payload(250))},
			}}})
		}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Batch(ctx, func(batch *tables.Batch) error {
		for i := range n {
			if err := batch.Update(func(tx *tables.Tx) error {
				return things.Put(tx, &thing{ID: things.ID(anywhere, name(i)), Data: wrapperspb.Bytes(payload(500))})
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	swarmUpdate := func(_, i int) error {
		return peer.Update(func(tx peers.Tx) error {
			node := peers.GetNode(tx, name(i%n))
			node.Spec.Annotations.Labels["count"] = fmt.Sprint(i)
			return peers.UpdateNode(tx, node)
		})
	}
	update := func(_, i int) error {
		return s.Update(ctx, func(tx *tables.Tx) error {
			o, err := things.Edit(tx, things.ID(anywhere, name(i%n)))
			if err != nil {
				return err
			}
			o.Metadata = map[string]string{"count": fmt.Sprint(i)}
			return things.Put(tx, o)
		})
	}
	compare(b, "tables", "update", []int{1, 16}, side{"swarmkit", swarmUpdate}, side{"ashlar", update})

	errShortList := errors.New("the list has fewer objects than expected")
	compare(b, "tables", "list-1000", []int{1}, side{"swarmkit", func(_, i int) (err error) {
		peer.View(func(tx peers.ReadTx) {
			var found []*swarm.Node
			if found, err = peers.FindNodes(tx, peers.ByIDPrefix(fmt.Sprintf("%03d-", i%max(1, n/1000)))); err == nil && len(found) < min(n, 1000) {
				err = errShortList
			}
		})
		return err
	}}, side{"ashlar", func(_, i int) error {
		return s.View(ctx, func(v *tables.View) error {
			found, err := things.List(v, tables.In(anywhere), tables.NamePrefix(fmt.Sprintf("%03d-", i%max(1, n/1000))))
			if err == nil && len(found) < min(n, 1000) {
				err = errShortList
			}
			return err
		})
	}})

	// An operation is 100 events for each of 100 watchers: 100 updates, and the wait until all watchers have them.
	const watchers, burst = 100, 100
	var seen sync.WaitGroup
	stop, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	b.Cleanup(func() { cancel(); running.Wait() })
	for range watchers {
		events, end := state.Watch(peer.WatchQueue(), swarm.EventUpdateNode{})
		running.Go(func() {
			defer end()
			for {
				select {
				case <-events:
					seen.Done()
				case <-stop.Done():
					return
				}
			}
		})
	}
	for range watchers {
		w := must(s.ViewAndWatch(ctx, nil))
		running.Go(func() {
			defer w.Close()
			for {
				if _, err := w.Next(stop); err != nil {
					return
				}
				seen.Done()
			}
		})
	}
	delivered := func(op func(_, i int) error) func(_, i int) error {
		return func(caller, i int) error {
			seen.Add(watchers * burst)
			for each := range burst {
				if err := op(caller, i*burst+each); err != nil { // an update without changes writes nothing
					return err
				}
			}
			seen.Wait()
			return nil
		}
	}
	compare(b, "tables", "100-events-100-watchers", []int{1}, side{"swarmkit", delivered(swarmUpdate)}, side{"ashlar", delivered(update)})
}
