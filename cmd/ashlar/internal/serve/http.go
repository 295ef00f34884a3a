package serve

import (
	"io"
	"net"
	"net/http"
	"time"
)

// headerTimeout is how long a client may take to send the headers of a request, and idleTimeout how long a connection may lie idle.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// serveHTTP serves until the server is shut down.
func serveHTTP(h *http.Server, l net.Listener) error {
	if h.TLSConfig != nil {
		return h.ServeTLS(l, "", "")
	}
	return h.Serve(l)
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // whoever asked may have gone
}
