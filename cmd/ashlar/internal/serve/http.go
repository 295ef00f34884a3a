package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// headerTimeout bounds the time until a client has sent the headers of a request, and bodyTimeout until it has sent the body; drainBodyTimeout that
// until it has sent the rest when the server drains. idleTimeout is the maximum idle time of a connection.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Minute

	drainBodyTimeout = time.Second

	idleTimeout = 2 * time.Minute
)

// boundBodies ends the connection of a client whose body does not arrive within a timeout, also where the handler does not read it. Once draining
// has ended, the rest of a body must arrive within drainBodyTimeout. http.Server.ReadTimeout would end watches, too.
func boundBodies(draining context.Context, next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.ContentLength != 0 {
			body := &boundBody{ReadCloser: r.Body, control: http.NewResponseController(w)}
			body.setDeadline(time.Now().Add(timeout))
			stop := context.AfterFunc(draining, func() { body.setDeadline(time.Now().Add(drainBodyTimeout)) })
			defer func() {
				stop()
				body.end()
			}()
			bounded := *r // net/http recognizes the body of its own request when it closes the connection
			bounded.Body = body
			r = &bounded
		}
		next.ServeHTTP(w, r)
	})
}

// boundBody is a body with a read deadline, which it clears at its end: net/http would end a request that takes longer.
type boundBody struct {
	io.ReadCloser
	control *http.ResponseController

	mu    sync.Mutex
	ended bool // the body was read, or its request was answered: control may not be used any more
}

// setDeadline sets the deadline, unless the body has ended.
func (b *boundBody) setDeadline(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.control.SetReadDeadline(at) // fails only on a connection that has ended
	}
}

// end prevents later deadlines.
func (b *boundBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// clearDeadline removes the deadline and prevents later ones, together: a drain may begin at any time.
func (b *boundBody) clearDeadline() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.control.SetReadDeadline(time.Time{}) // as in setDeadline
	}
	b.ended = true
}

// Read reads from the body.
func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.clearDeadline()
	}
	return n, err
}

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
