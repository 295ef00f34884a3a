package serve

import (
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// headerTimeout bounds the time until a client has sent the headers of a request. idleTimeout is the maximum idle time of a
// connection.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// serveHTTP serves until the server is shut down.
func serveHTTP(h *http.Server, l net.Listener) error {
	serve := h.Serve
	if h.TLSConfig != nil {
		serve = func(l net.Listener) error { return h.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // the client may have disconnected
}
