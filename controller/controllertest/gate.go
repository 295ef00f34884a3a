package controllertest

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// gate stops the calls of a process.
type gate struct {
	mu     sync.Mutex
	openCh chan struct{} // closed while the gate is open
	isDead bool
}

func newGate() *gate {
	g := &gate{openCh: make(chan struct{})}
	close(g.openCh)
	return g
}

func (g *gate) isOpen() bool {
	select {
	case <-g.openCh:
		return true
	default:
		return false
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpen() {
		g.openCh = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOpen() {
		close(g.openCh)
	}
}

func (g *gate) kill() {
	g.mu.Lock()
	g.isDead = true
	g.mu.Unlock()
	g.open()
}

var errKilled = status.Error(codes.Unavailable, "the process was killed")

// pass waits until the gate is open. It returns a context for the call: one that was stopped does not end with its caller.
func (g *gate) pass(ctx context.Context) (context.Context, error) {
	g.mu.Lock()
	opened, wasOpen := g.openCh, g.isOpen()
	g.mu.Unlock()
	<-opened
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.isDead:
		return nil, errKilled
	case !wasOpen:
		return context.WithoutCancel(ctx), nil
	}
	return ctx, nil
}

// gatedClient is the client of a process.
type gatedClient struct {
	resourcegrpc.ResourceServiceClient
	gate *gate
}

func (c gatedClient) Read(ctx context.Context, in *resourcepb.ReadRequest, opts ...grpc.CallOption) (*resourcepb.ReadResponse, error) {
	ctx, err := c.gate.pass(ctx)
	if err != nil {
		return nil, err
	}
	return c.ResourceServiceClient.Read(ctx, in, opts...)
}

func (c gatedClient) Write(ctx context.Context, in *resourcepb.WriteRequest, opts ...grpc.CallOption) (*resourcepb.WriteResponse, error) {
	ctx, err := c.gate.pass(ctx)
	if err != nil {
		return nil, err
	}
	return c.ResourceServiceClient.Write(ctx, in, opts...)
}

func (c gatedClient) WriteStatus(ctx context.Context, in *resourcepb.WriteStatusRequest, opts ...grpc.CallOption) (*resourcepb.WriteStatusResponse, error) {
	ctx, err := c.gate.pass(ctx)
	if err != nil {
		return nil, err
	}
	return c.ResourceServiceClient.WriteStatus(ctx, in, opts...)
}

func (c gatedClient) Delete(ctx context.Context, in *resourcepb.DeleteRequest, opts ...grpc.CallOption) (*resourcepb.DeleteResponse, error) {
	ctx, err := c.gate.pass(ctx)
	if err != nil {
		return nil, err
	}
	return c.ResourceServiceClient.Delete(ctx, in, opts...)
}

// gatedBackend is the backend of a process for leases.
type gatedBackend struct {
	storage.Backend
	gate *gate
}

// As gives access to the transactions of the backend only.
func (b gatedBackend) As(target any) bool {
	if tx, ok := target.(*storage.Transactor); ok {
		inner, ok := storage.As[storage.Transactor](b.Backend)
		*tx = gatedTransactor{inner, b.gate}
		return ok
	}
	return false
}

func (b gatedBackend) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	ctx, err := b.gate.pass(ctx)
	if err != nil {
		return nil, errors.Join(storage.ErrInconsistent, err)
	}
	return b.Backend.Read(ctx, c, id)
}

func (b gatedBackend) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	ctx, err := b.gate.pass(ctx)
	if err != nil {
		return nil, errors.Join(storage.ErrInconsistent, err)
	}
	return b.Backend.WriteCAS(ctx, res)
}

// gatedTransactor is the Transactor of a process.
type gatedTransactor struct {
	storage.Transactor
	gate *gate
}

func (b gatedTransactor) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	ctx, err := b.gate.pass(ctx)
	if err != nil {
		return nil, errors.Join(storage.ErrInconsistent, err)
	}
	return b.Transactor.Commit(ctx, ops)
}
