package web

import (
	"net/http"
	"time"
)

// WithStall returns a handler whose streams end when their client does not read for as long as d.
func WithStall(h http.Handler, d time.Duration) http.Handler {
	h.(*handler).stallTimeout = d
	return h
}
