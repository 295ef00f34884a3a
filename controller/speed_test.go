package controller_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/controllertest"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// BenchmarkManager measures one run over 100,000 resources on memory: until the cache is filled, until each is reconciled, and from a write to its reconcile.
func BenchmarkManager(b *testing.B) {
	thing := &resourcepb.Type{Group: "test", GroupVersion: "v1", Kind: "Thing"}
	backend := inmem.New(nil)
	defer backend.Close()
	client := service.New(backend, registry.NewOpen(registry.Type{}), nil).Client()
	data, _ := anypb.New(wrapperspb.String("a payload of some length, as many resources have it"))
	const n = 100_000
	for i := range n {
		if _, err := client.Write(b.Context(), &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: controllertest.ID(thing, "thing-%d", i), Data: data}, Create: true}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		var first, last atomic.Int64
		var count atomic.Int64
		done, hit := make(chan struct{}), make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(b.Context())
		m := controller.NewManager(client, &controller.Options{Logger: slog.New(slog.DiscardHandler)})
		if err := m.Register(controller.NewController("things", thing).WithPlacement(controller.PlacementEachServer).
			WithReconciler(controller.Typed(func(_ context.Context, _ controller.Runtime, _ controller.TypedRequest[*wrapperspb.StringValue]) error {
				switch c := count.Add(1); {
				case c == 1:
					first.Store(time.Now().UnixNano())
				case c == n:
					last.Store(time.Now().UnixNano())
					close(done)
				case c > n:
					hit <- struct{}{}
				}
				return nil
			}))); err != nil {
			b.Fatal(err)
		}
		began := time.Now().UnixNano()
		ended := make(chan struct{})
		go func() { defer close(ended); _ = m.Run(ctx) }()
		<-done
		var took []time.Duration
		for i := range 1000 {
			at := time.Now()
			if _, err := client.Write(b.Context(), &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: controllertest.ID(thing, "thing-%d", i), Data: data}}); err != nil {
				b.Fatal(err)
			}
			<-hit
			took = append(took, time.Since(at))
		}
		cancel()
		<-ended
		slices.Sort(took)
		b.ReportMetric(float64(first.Load()-began)/1e9, "s-primed")
		b.ReportMetric(float64(last.Load()-first.Load())/1e9, "s-reconciled")
		b.ReportMetric(float64(took[500].Microseconds()), "µs-event")
	}
}
