package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

var thing = &resourcepb.Type{Group: "bench", GroupVersion: "v1", Kind: "Thing"}

// ours is package controller over a resource service on memory.
type ours struct {
	client resourcegrpc.ResourceServiceClient
}

func newOurs(b *testing.B) *ours {
	backend := inmem.New(nil)
	b.Cleanup(func() { _ = backend.Close() })
	o := &ours{service.New(backend, registry.NewOpen(registry.Type{}), nil).Client()}
	for i := range *objects {
		o.write(b, i)
	}
	return o
}

func (o *ours) write(b *testing.B, i int) {
	data, err := anypb.New(wrapperspb.String(payload(i)))
	if err != nil {
		b.Fatal(err)
	}
	res := &resourcepb.Resource{Data: data, Id: &resourcepb.ID{
		Type: thing, Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}, Name: name(i),
	}}
	if _, err := o.client.Write(context.Background(), &resourcepb.WriteRequest{Resource: res}); err != nil {
		b.Fatal(err)
	}
}

// run implements side.
func (o *ours) run(b *testing.B, reconciled func()) (touch func(i int), stop func()) {
	m := controller.NewManager(o.client, &controller.Options{Logger: slog.New(slog.DiscardHandler)})
	err := m.Register(controller.NewController("things", thing).WithPlacement(controller.PlacementEachServer).
		WithReconciler(controller.Typed(func(_ context.Context, _ controller.Runtime, req controller.TypedRequest[*wrapperspb.StringValue]) error {
			if req.Object == nil || req.Object.Data.GetValue() == "" {
				return fmt.Errorf("%v has no payload", req.ID)
			}
			reconciled()
			return nil
		})))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx)
	}()
	return func(i int) { o.write(b, i) }, func() {
		cancel()
		<-ended
	}
}
