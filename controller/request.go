package controller

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// Request asks for a reconcile of a managed resource.
type Request struct {
	// ID is the id of the resource. Its uid is that of the cached resource, "" if there is none; mappers need not set it.
	ID *resourcepb.ID
}

// Reconciler brings a part of the world to the state that a managed resource describes.
type Reconciler interface {
	// Reconcile is called after the managed resource, or a resource that maps to it, has changed, and again from time to time. It reads the current
	// state, and must not depend on the change. It is called by one goroutine at a time for a resource, and by up to WithWorkers ones for
	// different resources.
	//
	// After an error or a panic it is called again with a growing delay; see RequeueAfter, RequeueNow and Terminal for other results. The context
	// ends after WithTimeout, when the lease of the controller is lost, and some time after the manager was stopped; Reconcile should then return.
	Reconcile(ctx context.Context, rt Runtime, req Request) error
}

// ReconcileFunc is a function that implements Reconciler.
type ReconcileFunc func(ctx context.Context, rt Runtime, req Request) error

// Reconcile implements Reconciler.
func (f ReconcileFunc) Reconcile(ctx context.Context, rt Runtime, req Request) error {
	return f(ctx, rt, req)
}

// Initializer prepares a controller before its first reconcile, for example by creating a resource. With a lease it is called in each tenure. It
// is repeated with growing delays until it succeeds.
type Initializer interface {
	Initialize(ctx context.Context, rt Runtime) error
}

// DependencyMapper returns the requests that a resource concerns. It is called with the old and the new state of each changed resource, so if a
// reference moves, both of its ends are reconciled. Requests of other types than the controller's are ignored and counted. After an error the
// change is mapped again with a growing delay. Mappers of a watch are called one at a time.
type DependencyMapper func(ctx context.Context, rt Runtime, res *resourcepb.Resource) ([]Request, error)

// Event is an event of a Source.
type Event struct{ Obj any }

// Source is a source of events that are no resources. An event is received when the previous one was mapped.
type Source struct{ Source <-chan Event }

// CustomDependencyMapper returns the requests that an event concerns. After an error the event is mapped again with a growing delay.
type CustomDependencyMapper func(ctx context.Context, rt Runtime, event Event) ([]Request, error)

// Runtime is what a reconcile works with. It is valid during the call.
type Runtime struct {
	// Client calls the resource service. Its writes carry the fence of the controller's lease: if the lease was lost, even unnoticed, they fail and
	// change nothing. They are visible in Cache at once. Its reads are linearizable; Cache is cheaper. In a mapper, which also runs without the
	// lease, writes carry no fence and are not visible at once: a mapper should only read.
	Client resourcegrpc.ResourceServiceClient
	// Cache reads the watched types from memory.
	Cache Cache
	// Logger logs with the names of the controller and of the resource.
	Logger Logger
	// Epoch is the number of the tenure of the controller's lease, 0 without one. Later tenures have higher numbers, so another system can
	// reject requests of earlier ones.
	Epoch int64

	versionedStatus bool // statuses name the version that they apply to
}

// Logger is a structured logger with the additional level Trace.
type Logger struct{ *slog.Logger }

// levelTrace is below slog.LevelDebug.
const levelTrace = slog.LevelDebug - 4

// With returns a logger with additional attributes.
func (l Logger) With(args ...any) Logger { return Logger{l.Logger.With(args...)} }

// Trace logs below the level Debug.
func (l Logger) Trace(msg string, args ...any) {
	l.Log(context.Background(), levelTrace, msg, args...)
}

// IsTrace reports whether Trace has an effect.
func (l Logger) IsTrace() bool { return l.Enabled(context.Background(), levelTrace) }

// requeue is a result of a reconcile that is no failure.
type requeue struct{ after time.Duration }

func (r requeue) Error() string { return fmt.Sprintf("requeue after %v", r.after) }

// RequeueAfter returns an error that requests another reconcile after a time. It is no failure: the back-off of the resource starts anew. A change
// of the resource in between reconciles at once, and its result replaces the request.
func RequeueAfter(after time.Duration) error { return requeue{max(after, time.Nanosecond)} }

// RequeueNow is RequeueAfter without a delay; other waiting resources are reconciled first.
func RequeueNow() error { return requeue{time.Nanosecond} }

// terminal is a failure without retries.
type terminal struct{ error }

func (t terminal) Unwrap() error { return t.error }

// Terminal returns an error that is not retried before the resource changes, or the forced reconcile is due. It returns nil for nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return terminal{err}
}
