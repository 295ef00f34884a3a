package controller

import (
	"context"
	"log/slog"

	"github.com/ashlar-dev/storage/driver/key"
)

// resourceHandler adds the name of a resource to records. It formats the name when a record is handled, because most reconciles log nothing.
type resourceHandler struct {
	slog.Handler
	key *key.Key
}

// withName returns the handler with the name.
func (h *resourceHandler) withName() slog.Handler {
	return h.Handler.WithAttrs([]slog.Attr{slog.String("resource", h.key.Partition+"/"+h.key.Namespace+"/"+h.key.Name)})
}

// Handle implements slog.Handler.
func (h *resourceHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.withName().Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *resourceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.withName().WithAttrs(attrs)
}

// WithGroup implements slog.Handler.
func (h *resourceHandler) WithGroup(name string) slog.Handler { return h.withName().WithGroup(name) }
