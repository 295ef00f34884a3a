package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/ashlar-dev/storage"
)

// Call is a running call of an operation.
type Call struct {
	recorder  *Recorder
	operation Operation
	began     time.Time
	span      trace.Span // nil without a Tracer
}

// Begin begins a call. The returned context has the call's span, if there is a Tracer.
func (r *Recorder) Begin(ctx context.Context, operation Operation) (context.Context, Call) {
	if r == nil {
		return ctx, Call{}
	}
	c := Call{recorder: r, operation: operation, began: time.Now()}
	if r.tracer != nil {
		ctx, c.span = r.tracer.Start(ctx, operation.String(), trace.WithSpanKind(trace.SpanKindClient), r.spans[operation])
	}
	return ctx, c
}

// End records the end of a call with its error.
func (c *Call) End(ctx context.Context, err error) {
	if c.recorder != nil {
		c.end(ctx, err)
	}
}

func (c *Call) end(ctx context.Context, err error) {
	r, took := c.recorder, time.Since(c.began)
	kind := errorTypeOf(err)
	if r.calls != nil {
		r.calls[c.operation][kind].Add(ctx, took.Seconds())
	}
	if c.span != nil {
		if err != nil {
			c.span.SetStatus(codes.Error, err.Error())
			c.span.SetAttributes(attribute.String(ErrorType, errorTypes[kind].name))
		}
		c.span.End()
	}
	if err == nil {
		return
	}
	level := slog.LevelDebug
	message := "call failed"
	if c.operation.changes() && errors.Is(err, storage.ErrInconsistent) {
		level, message = slog.LevelWarn, "a write may or may not have been applied"
	}
	if r.logger.Enabled(ctx, level) {
		r.logger.LogAttrs(ctx, level, message, slog.String(OperationName, c.operation.String()),
			slog.String(ErrorType, errorTypes[kind].name), slog.Duration("took", took), slog.Any("error", err))
	}
}
