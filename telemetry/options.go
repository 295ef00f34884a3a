package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Options are the receivers of a store's reports. A nil field receives nothing; the zero value costs a store nothing.
type Options struct {
	// Logger receives the events that an operator may have to act on at level Warn, changes of state at level Info, and each failed call
	// at level Debug. No record contains a password or the payload of a resource.
	Logger *slog.Logger
	// Meter creates the instruments of Metrics. Stores with the same Meter are distinguished by the attribute db.namespace. Two handles of
	// one store need different Meters, or their gauges show one of the handles.
	Meter metric.Meter
	// Tracer starts a span for each call.
	Tracer trace.Tracer
}

// Or returns o with the fields of other in place of its nil fields.
func (o Options) Or(other Options) Options {
	if o.Logger == nil {
		o.Logger = other.Logger
	}
	if o.Meter == nil {
		o.Meter = other.Meter
	}
	if o.Tracer == nil {
		o.Tracer = other.Tracer
	}
	return o
}

type contextKey struct{}

// NewContext returns a context that passes options to storage.Open. The log parameter of a URL replaces the Logger.
func NewContext(ctx context.Context, o Options) context.Context {
	return context.WithValue(ctx, contextKey{}, o)
}

// FromContext returns the options of NewContext, or the zero value.
func FromContext(ctx context.Context) Options {
	o, _ := ctx.Value(contextKey{}).(Options)
	return o
}
