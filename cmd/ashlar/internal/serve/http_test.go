package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// bodies is a handler with the paths /unread, which ignores bodies, /read, and /long, which reads the body and waits for done.
func bodies(began chan<- struct{}, done <-chan struct{}, ended chan<- error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/unread", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			w.WriteHeader(http.StatusRequestTimeout)
		}
	})
	mux.HandleFunc("/long", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // it is in one packet with the headers
		close(began)
		select {
		case <-r.Context().Done():
		case <-done:
		}
		ended <- r.Context().Err()
	})
	return mux
}

// sendRaw sends the text of a PUT request, which need not be complete, and returns its connection.
func sendRaw(t *testing.T, server *httptest.Server, request string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, "PUT "+request); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A body that does not arrive ends the connection, whether the handler reads it or not. A body that has arrived does not end a request that
// takes longer. The time of a body is longer after a failure, because it may have passed while the body was read.
func TestBoundBodies(t *testing.T) {
	t.Parallel()
	for limit := 50 * time.Millisecond; ; limit *= 20 {
		err := tryBoundBodies(t, limit)
		if err == nil {
			return
		}
		if limit > 10*time.Second {
			t.Fatalf("the deadline of a body that has arrived ended its request: %v", err)
		}
	}
}

// tryBoundBodies returns the error of the request whose body has arrived.
func tryBoundBodies(t *testing.T, limit time.Duration) error {
	t.Helper()
	began, done, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	server := httptest.NewServer(boundBodies(t.Context(), bodies(began, done, ended), limit))
	t.Cleanup(server.Close)
	sendRaw(t, server, "/long HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	<-began
	for request, want := range map[string]int{
		"/unread HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{":        http.StatusOK,
		"/unread HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n": http.StatusOK,
		"/read HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{":          http.StatusRequestTimeout,
	} {
		got, err := http.ReadResponse(bufio.NewReader(sendRaw(t, server, request)), nil)
		if err != nil {
			t.Fatalf("%q: %v", request, err)
		}
		_ = got.Body.Close() // it was not read
		if got.StatusCode != want || !got.Close {
			t.Errorf("%q: %d, the connection is closed: %v", request, got.StatusCode, got.Close)
		}
	}
	close(done) // these timeouts began later than that of the long request
	return <-ended
}

// Once the server drains, the rest of a body must arrive at once. A body that has arrived does not end its request.
func TestBodiesDuringDrain(t *testing.T) {
	t.Parallel()
	began, done, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s := &server{config: &Config{Logger: slog.New(slog.DiscardHandler)}}
	s.drainCtx, s.beginDrain = context.WithCancel(t.Context())
	server := httptest.NewServer(s.newHTTP(bodies(began, done, ended), false).Handler)
	t.Cleanup(server.Close)
	sendRaw(t, server, "/long HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	<-began
	slow := sendRaw(t, server, "/read HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
	s.beginDrain()
	got, err := http.ReadResponse(bufio.NewReader(slow), nil)
	if err != nil {
		t.Fatalf("the server waits for the body: %v", err)
	}
	_ = got.Body.Close() // it was not read
	if got.StatusCode != http.StatusRequestTimeout || !got.Close {
		t.Errorf("%d, the connection is closed: %v", got.StatusCode, got.Close)
	}
	close(done)
	if err := <-ended; err != nil {
		t.Errorf("the drain ended a request whose body had arrived: %v", err)
	}
}

// A client that asks whether to send its body gets an answer that does not need the body at once, and its connection is closed.
func TestUnreadBodyIsNotExpected(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(boundBodies(t.Context(), bodies(nil, nil, nil), time.Hour))
	t.Cleanup(server.Close)
	conn := sendRaw(t, server, "/unread HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = got.Body.Close() // it was not read
	if got.StatusCode != http.StatusOK || !got.Close {
		t.Errorf("%d, the connection is closed: %v", got.StatusCode, got.Close)
	}
}
