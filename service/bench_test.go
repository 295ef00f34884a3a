package service_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// empty answers every call without work, to measure the cost of gRPC.
type empty struct {
	resourcegrpc.UnimplementedResourceServiceServer
	res *resourcepb.Resource
}

func (e empty) Read(context.Context, *resourcepb.ReadRequest) (*resourcepb.ReadResponse, error) {
	return &resourcepb.ReadResponse{Resource: e.res}, nil
}

// ready sends prepared messages to its streams, to measure the cost of the streams.
type ready struct {
	resourcegrpc.UnimplementedResourceServiceServer
	mu      sync.Mutex
	streams []chan *resourcepb.WatchEvent
}

func (r *ready) WatchList(_ *resourcepb.WatchListRequest, out grpc.ServerStreamingServer[resourcepb.WatchEvent]) error {
	events := make(chan *resourcepb.WatchEvent, 1000)
	r.mu.Lock()
	r.streams = append(r.streams, events)
	r.mu.Unlock()
	if err := out.Send(&resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}}); err != nil {
		return err
	}
	for {
		select {
		case <-out.Context().Done():
			return nil
		case ev := <-events:
			if err := out.Send(ev); err != nil {
				return err
			}
		}
	}
}

// send sends an event to all streams.
func (r *ready) send(ev *resourcepb.WatchEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, events := range r.streams {
		events <- ev
	}
}

// measured is a store with one resource of 500 bytes, and a service over it.
type measured struct {
	backend storage.Backend
	server  *service.Server
	id      *resourcepb.ID
}

func newMeasured(b *testing.B) *measured {
	b.Helper()
	m := &measured{backend: inmem.New(nil)}
	b.Cleanup(func() { m.backend.Close() })
	types, err := registry.New(registry.Type{Type: albumType, Proto: &anypb.Any{}, Scope: registry.ScopeNamespace})
	if err != nil {
		b.Fatal(err)
	}
	m.server = service.New(m.backend, types, nil)
	m.id = m.write(b, "one").GetId()
	return m
}

func fiveHundredBytes() *anypb.Any {
	p, err := anypb.New(&anypb.Any{Value: make([]byte, 500)})
	if err != nil {
		panic(err)
	}
	return p
}

func (m *measured) write(b *testing.B, name string) *resourcepb.Resource {
	b.Helper()
	out, err := m.server.Write(b.Context(), &resourcepb.WriteRequest{Resource: &resourcepb.Resource{
		Id: &resourcepb.ID{Type: albumType, Name: name}, Data: fiveHundredBytes()}})
	if err != nil {
		b.Fatal(err)
	}
	return out.GetResource()
}

// overLoopback serves a service over loopback and returns a client.
func overLoopback(b *testing.B, srv resourcegrpc.ResourceServiceServer) resourcegrpc.ResourceServiceClient {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer()
	resourcegrpc.RegisterResourceServiceServer(s, srv)
	go s.Serve(l)
	b.Cleanup(s.Stop)
	cc, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cc.Close() })
	return resourcegrpc.NewResourceServiceClient(cc)
}

func BenchmarkRead(b *testing.B) {
	m := newMeasured(b)
	req := &resourcepb.ReadRequest{Id: m.id}
	b.Run("backend", func(b *testing.B) {
		for b.Loop() {
			if _, err := m.backend.Read(b.Context(), storage.EventualConsistency, m.id); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("service", func(b *testing.B) {
		for b.Loop() {
			if _, err := m.server.Read(b.Context(), req); err != nil {
				b.Fatal(err)
			}
		}
	})
	read := func(c resourcegrpc.ResourceServiceClient) func(b *testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Read(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("client", read(m.server.Client()))
	res, err := m.backend.Read(b.Context(), storage.EventualConsistency, m.id)
	if err != nil {
		b.Fatal(err)
	}
	for _, callers := range []int{1, 32} {
		for _, srv := range []struct {
			name string
			resourcegrpc.ResourceServiceServer
		}{{"empty", empty{res: res}}, {"service", m.server}} {
			c := overLoopback(b, srv.ResourceServiceServer)
			b.Run(fmt.Sprintf("grpc-%d/%s", callers, srv.name), func(b *testing.B) {
				b.SetParallelism(callers)
				if callers == 1 {
					read(c)(b)
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := c.Read(b.Context(), req); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	m := newMeasured(b)
	b.Run("backend", func(b *testing.B) { // what a write takes without a service: a read and a compare-and-swap
		for b.Loop() {
			res, err := m.backend.Read(b.Context(), storage.EventualConsistency, m.id)
			if err != nil {
				b.Fatal(err)
			}
			if _, err = m.backend.WriteCAS(b.Context(), res); err != nil {
				b.Fatal(err)
			}
		}
	})
	req := &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: &resourcepb.ID{Type: albumType, Name: "one"}, Data: fiveHundredBytes()}}
	b.Run("service", func(b *testing.B) {
		for b.Loop() {
			if _, err := m.server.Write(b.Context(), req); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkList(b *testing.B) {
	m := newMeasured(b)
	for i := range 100_000 {
		m.write(b, fmt.Sprintf("n-%06d", i))
	}
	tenancy := &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
	b.Run("backend", func(b *testing.B) {
		for b.Loop() {
			runtime.GC()
			if _, err := m.backend.List(b.Context(), storage.EventualConsistency, storage.UnversionedTypeFrom(albumType), tenancy, ""); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("service", func(b *testing.B) {
		for b.Loop() {
			runtime.GC()
			if _, err := m.server.List(b.Context(), &resourcepb.ListRequest{Type: albumType, Tenancy: tenancy}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWatch reports the time per event and stream.
func BenchmarkWatch(b *testing.B) {
	const streams = 1000
	for _, over := range []string{"backend", "service", "grpc", "ready"} {
		b.Run(over, func(b *testing.B) {
			m := newMeasured(b)
			ctx, cancel := context.WithCancel(b.Context())
			var open, done, all sync.WaitGroup
			change := func() { m.write(b, "one") }
			open.Add(streams)
			var c resourcegrpc.ResourceServiceClient
			switch over {
			case "service":
				c = m.server.Client()
			case "grpc":
				c = overLoopback(b, m.server)
			case "ready":
				bare := &ready{}
				c = overLoopback(b, bare)
				event := &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: m.write(b, "one")}}}
				change = func() { bare.send(event) }
			}
			for range streams {
				var next func() (*resourcepb.WatchEvent, error)
				if c == nil {
					w, err := m.backend.WatchList(ctx, storage.UnversionedTypeFrom(albumType), &resourcepb.Tenancy{Partition: "default", Namespace: "default"}, "")
					if err != nil {
						b.Fatal(err)
					}
					defer w.Close()
					next = func() (*resourcepb.WatchEvent, error) { return w.Next(ctx) }
				} else {
					w, err := c.WatchList(ctx, &resourcepb.WatchListRequest{Type: albumType})
					if err != nil {
						b.Fatal(err)
					}
					next = w.Recv
				}
				all.Go(func() {
					live := false
					for {
						ev, err := next()
						switch {
						case err != nil:
							return
						case live:
							done.Done()
						case ev.GetEndOfSnapshot() != nil:
							live = true
							open.Done()
						}
					}
				})
			}
			open.Wait()
			const burst = 20
			for b.Loop() {
				done.Add(burst * streams)
				for range burst {
					change()
				}
				done.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/burst/streams, "ns/event-stream")
			cancel()
			all.Wait()
		})
	}
}
