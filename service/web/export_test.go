package web

import (
	"net/http"
	"time"
)

// WithStallTimeout sets the stall timeout of a handler.
func WithStallTimeout(h http.Handler, d time.Duration) http.Handler {
	h.(*handler).stallTimeout = d
	return h
}

// WithBodyTimeout sets the time that a client has to send a body.
func WithBodyTimeout(h http.Handler, d time.Duration) http.Handler {
	h.(*handler).bodyTimeout = d
	return h
}
