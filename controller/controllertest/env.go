// Package controllertest tests controllers: in a bubble of testing/synctest with a resource service on memory, so hours of back-off or fail-over take
// milliseconds, and with processes that can be killed and frozen. [Test] checks that a store gives controllers their guarantees.
package controllertest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/reaper"
	"github.com/ashlar-dev/storage/service/registry"
)

// Env is a resource service and the processes that run controllers over it. Its methods fail the test instead of returning an error.
type Env struct {
	T testing.TB
	// Backend is the store of the service.
	Backend storage.Backend
	// Client calls the service.
	Client resourcegrpc.ResourceServiceClient

	server  *service.Server
	ctx     context.Context
	running sync.WaitGroup
}

// Run calls f in a bubble of testing/synctest, with a service of the types on memory, nil for any type, and with a reaper. At the end it stops all
// processes. f waits with Settle, or with time.Sleep, which takes no real time.
func Run(t *testing.T, types *registry.Registry, f func(*Env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		backend := inmem.New(nil)
		defer func() { _ = backend.Close() }()
		run(t, types, backend, f)
	})
}

// run calls f with a service over a backend.
func run(t testing.TB, types *registry.Registry, backend storage.Backend, f func(*Env)) {
	if types == nil {
		types = registry.NewOpen(registry.Type{})
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	server := service.New(backend, types, &service.Options{Logger: slog.New(slog.DiscardHandler)})
	e := &Env{T: t, Backend: backend, Client: server.Client(), server: server, ctx: ctx}
	defer e.running.Wait()
	defer stop()
	e.running.Go(func() { _ = reaper.New(server, &reaper.Options{Logger: slog.New(slog.DiscardHandler)}).Run(ctx) })
	f(e)
}

// Settle blocks until nothing happens before time passes: all events have arrived, and all queues are empty, except for delayed work. It must be
// called in a bubble. After a conflict the service pauses before it repeats the call, so sleep first if reconciles may conflict.
func (e *Env) Settle() { synctest.Wait() }

// Process is a process that runs controllers.
type Process struct {
	gate  *gate
	stop  context.CancelFunc
	endCh chan struct{}
}

// Manager starts a process with controllers. It ends with the environment, unless it is stopped or killed before. Nil options, and a
// nil Logger, log nothing. The leases are always those of the environment.
func (e *Env) Manager(o *controller.Options, controllers ...*controller.Controller) *Process {
	e.T.Helper()
	return e.start(e.Client, o, controllers...)
}

// start starts a process that uses a client.
func (e *Env) start(client resourcegrpc.ResourceServiceClient, o *controller.Options, controllers ...*controller.Controller) *Process {
	e.T.Helper()
	opts := controller.Options{}
	if o != nil {
		opts = *o
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Process{gate: newGate(), endCh: make(chan struct{})}
	opts.Leases = gatedBackend{e.Backend, p.gate}
	m := controller.NewManager(gatedClient{client, p.gate}, &opts)
	if err := m.Register(controllers...); err != nil {
		e.T.Fatal(err)
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(e.ctx)
	e.running.Go(func() {
		defer close(p.endCh)
		_ = m.Run(ctx)
	})
	context.AfterFunc(e.ctx, p.gate.open)
	return p
}

// Stop stops the process in order, and waits until it has ended.
func (p *Process) Stop() {
	p.stop()
	<-p.endCh
}

// Kill ends the process at once: none of its calls reaches the service or the store any more, so its leases are not freed.
func (p *Process) Kill() {
	p.gate.kill()
	p.Stop()
}

// Freeze stops the process's calls before they reach the service or the store. Calls that have reached them continue.
func (p *Process) Freeze() { p.gate.close() }

// Thaw ends Freeze. The stopped calls continue, even if the process has given them up meanwhile: like a request that was in a socket of a paused
// process.
func (p *Process) Thaw() { p.gate.open() }

// Write stores a resource, without a condition, and returns it.
func (e *Env) Write(res *resourcepb.Resource) *resourcepb.Resource {
	e.T.Helper()
	answer, err := e.Client.Write(e.ctx, &resourcepb.WriteRequest{Resource: res})
	if err != nil {
		e.T.Fatalf("write %v: %v", res.GetId(), err)
	}
	return answer.GetResource()
}

// Put stores a payload under an id.
func (e *Env) Put(id *resourcepb.ID, payload proto.Message) *resourcepb.Resource {
	e.T.Helper()
	data, err := anypb.New(payload)
	if err != nil {
		e.T.Fatal(err)
	}
	return e.Write(&resourcepb.Resource{Id: id, Data: data})
}

// Delete deletes a resource.
func (e *Env) Delete(id *resourcepb.ID) {
	e.T.Helper()
	if _, err := e.Client.Delete(e.ctx, &resourcepb.DeleteRequest{Id: id}); err != nil {
		e.T.Fatalf("delete %v: %v", id, err)
	}
}

// List returns the stored resources of a type in all tenancies.
func (e *Env) List(typ *resourcepb.Type) []*resourcepb.Resource {
	e.T.Helper()
	all, err := e.Backend.List(e.ctx, storage.StrongConsistency, storage.UnversionedTypeFrom(typ),
		&resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}, "")
	if err != nil {
		e.T.Fatalf("list %v: %v", typ, err)
	}
	return all
}

// ID returns an id in the tenancy default/default.
func ID(typ *resourcepb.Type, format string, args ...any) *resourcepb.ID {
	return &resourcepb.ID{
		Type: proto.CloneOf(typ), Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}, Name: fmt.Sprintf(format, args...),
	}
}
