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

// WithBodyTimeout sets the timeout for the body of a request.
func WithBodyTimeout(h http.Handler, d time.Duration) http.Handler {
	h.(*handler).bodyTimeout = d
	return h
}

// CachedKinds returns the number of kinds that a handler has in memory.
func CachedKinds(h http.Handler) int { return len(h.(*handler).storedKinds.until) }
