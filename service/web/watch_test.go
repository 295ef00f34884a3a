package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/service/web"
)

// stream is the client's side of a watch.
type stream struct {
	t    *testing.T
	code int
	out  *bufio.Reader
	stop func()
}

// watch opens a stream. Each line is validated against the document.
func (s *site) watch(t *testing.T, path string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	require.NoError(t, err)
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { got.Body.Close() })
	if got.StatusCode == http.StatusOK {
		require.Equal(t, "application/x-ndjson", got.Header.Get("Content-Type"))
	}
	return &stream{t, got.StatusCode, bufio.NewReader(got.Body), cancel}
}

// next returns the next line, or nil at the end.
func (s *stream) next() map[string]any {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	if err == io.EOF {
		require.Empty(s.t, line)
		return nil
	}
	require.NoError(s.t, err)
	var ev map[string]any
	require.NoError(s.t, json.Unmarshal([]byte(line), &ev), line)
	return ev
}

// event returns the kind of the next event and the name of its resource.
func event(ev map[string]any) string {
	for _, kind := range []string{"upsert", "delete", "endOfSnapshot", "bookmark", "error"} {
		e, there := ev[kind].(map[string]any)
		if !there {
			continue
		}
		if res, there := e["resource"].(map[string]any); there {
			return kind + " " + res["id"].(map[string]any)["name"].(string)
		}
		return kind
	}
	return fmt.Sprint(ev)
}

// A watch sends a snapshot and every change without delay. Another watch can resume after any of them.
func TestWatch(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		s.put("/demo/v1/album/a", `{"data":`+everything+`}`)
		first := s.watch(t, "/demo/v1/album?watch")
		snapshot := first.next()
		require.Equal(t, s.get("/demo/v1/album/a").object(t), snapshot["upsert"].(map[string]any)["resource"])
		require.NotContains(t, snapshot, "cursor")
		end := first.next()
		cursor, ok := end["cursor"].(string)
		require.True(t, ok, "%v", end)
		require.Equal(t, "endOfSnapshot", event(end))

		s.put("/demo/v1/album/b", `{}`)
		change := first.next()
		after := change["cursor"].(string)
		require.Equal(t, "upsert b", event(change))
		s.put("/demo/v1/album/a?ns=other", `{}`)
		s.delete("/demo/v1/album/b")
		require.Equal(t, "delete b", event(first.next()))

		second := s.watch(t, "/demo/v1/album?watch&before&cursor="+cursor)
		require.Equal(t, "upsert b", event(second.next()))
		gone := second.next()
		require.Equal(t, "b", gone["before"].(map[string]any)["id"].(map[string]any)["name"])
		require.Equal(t, "delete b", event(gone))
		third := s.watch(t, "/demo/v1/album?watch&cursor="+after+"&name_prefix=q")
		s.put("/demo/v1/album/q", `{}`)
		require.Equal(t, "upsert q", event(third.next()))
	})
}

// The client of an idle stream gets a header. A rejected stream has the code of its error.
func TestRejectedWatchHasCode(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		first := s.watch(t, "/demo/v1/studio?watch")
		cursor := first.next()["cursor"].(string)
		require.Equal(t, http.StatusOK, s.watch(t, "/demo/v1/studio?watch&cursor="+cursor).code, "quiet, but it answers")
		require.Equal(t, http.StatusUnprocessableEntity, s.watch(t, "/demo/v1/studio?watch&cursor=garbage").code)
		require.Equal(t, http.StatusBadRequest, s.watch(t, "/demo/v1/studio?watch&ns=x").code)
		require.Equal(t, http.StatusBadRequest, s.watch(t, "/demo/v1/studio?watch&bookmark=0").code)
		require.Equal(t, http.StatusUnprocessableEntity, s.watch(t, "/demo/v1/studio?watch&limit=3").code)
		require.Equal(t, http.StatusBadRequest, s.watch(t, "/demo/v1/studio?watch=false").code)
		require.Equal(t, http.StatusUnprocessableEntity, s.get("/demo/v1/studio?cursor="+cursor).code, "without watch")
		require.Equal(t, http.StatusMethodNotAllowed, s.do(http.MethodHead, "/demo/v1/studio?watch", "").code)
	})
}

// A watch gets its bookmarks at their interval, even after the server's timeouts.
func TestBookmarksOutliveServerTimeouts(t *testing.T) {
	t.Parallel()
	withServerTimeout(t, func(seconds int) error {
		return readBookmarks(t, false, seconds, 1, seconds+2)
	})
}

// withServerTimeout calls try with a short timeout of the HTTP server, and with longer ones while try fails: a slow machine may exceed a timeout
// that applies before the watch has begun.
func withServerTimeout(t *testing.T, try func(seconds int) error) {
	t.Helper()
	for seconds := 4; ; seconds *= 4 {
		err := try(seconds)
		if err == nil {
			return
		}
		require.Less(t, seconds, 64, "with timeouts of %d seconds: %v", seconds, err)
		t.Logf("with timeouts of %d seconds: %v, trying longer ones", seconds, err)
	}
}

// readBookmarks reads a number of bookmarks from a watch without other events. The server has read, write and stall timeouts. The interval of
// the bookmarks is also in seconds.
func readBookmarks(t *testing.T, http2 bool, timeout, interval, count int) error {
	t.Helper()
	types, limit := catalog(t), time.Duration(timeout)*time.Second
	server := httptest.NewUnstartedServer(web.WithStallTimeout(web.NewHandler(memorySite(t, types, nil).client, types, nil), limit))
	server.Config.WriteTimeout = limit
	if server.EnableHTTP2 = http2; http2 {
		server.StartTLS()
	} else {
		server.Config.ReadTimeout = limit
		server.Start()
	}
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprint(server.URL, "/demo/v1/studio?watch&bookmark=", interval), nil)
	require.NoError(t, err)
	got, err := server.Client().Do(r)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	require.Equal(t, http2, got.ProtoMajor == 2)
	lines := bufio.NewScanner(got.Body)
	for seen := 0; seen < count; {
		if !lines.Scan() {
			return fmt.Errorf("the watch has ended after %d bookmarks: %w", seen, lines.Err())
		}
		var ev map[string]any
		require.NoError(t, json.Unmarshal(lines.Bytes(), &ev), lines.Text())
		switch event(ev) {
		case "error":
			return errors.New(lines.Text())
		case "bookmark":
			require.NotEmpty(t, ev["bookmark"].(map[string]any)["cursor"])
			seen++
		}
	}
	return nil
}

// A watch with a timeout ends with an error, after which its client resumes.
func TestWatchTimeout(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		var w *stream
		for timeout := 1; ; timeout *= 4 { // until the snapshot ends before the timeout
			w = s.watch(t, fmt.Sprint("/demo/v1/studio?watch&timeout=", timeout))
			if w.code == http.StatusOK && event(w.next()) == "endOfSnapshot" {
				break
			}
			require.Less(t, timeout, 60, "status of the answer: %d", w.code)
		}
		last := w.next()
		require.Equal(t, "error", event(last))
		require.Equal(t, "DEADLINE_EXCEEDED", last["error"].(map[string]any)["status"])
		require.Nil(t, w.next())
		require.Equal(t, http.StatusBadRequest, s.watch(t, "/demo/v1/studio?watch&timeout=0").code)
		require.Equal(t, http.StatusUnprocessableEntity, s.get("/demo/v1/studio?timeout=1").code, "without watch")
	})
}

// A server that shuts down ends its streams with an error, and waits for nothing else.
func TestWatchEndsWithTheServer(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		w := s.watch(t, "/demo/v1/studio?watch")
		require.Equal(t, "endOfSnapshot", event(w.next()))
		s.service.Drain()
		last := w.next()
		require.Equal(t, "error", event(last))
		require.Equal(t, "UNAVAILABLE", last["error"].(map[string]any)["status"])
		require.Nil(t, w.next(), "the stream ends well")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		require.NoError(t, s.http.Shutdown(ctx))
	})
}

// A stream ends with an error when the context of its request ends, as during a shutdown.
func TestWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	s := memorySite(t, catalog(t), nil, func(server *http.Server) {
		inner := server.Handler
		server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("watch") {
				defer close(ended)
				r = r.WithContext(ctx)
			}
			inner.ServeHTTP(w, r)
		})
	})
	w := s.watch(t, "/demo/v1/studio?watch")
	require.Equal(t, "endOfSnapshot", event(w.next()))
	cancel()
	require.Equal(t, "UNAVAILABLE", w.next()["error"].(map[string]any)["status"])
	require.Nil(t, w.next())
	<-ended
}

// After a client has disconnected, the handler and its receiver return.
func TestWatchEndsWithItsClient(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	s := memorySite(t, catalog(t), nil, func(server *http.Server) {
		inner := server.Handler
		server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner.ServeHTTP(w, r)
			if r.URL.Query().Has("watch") {
				close(ended)
			}
		})
	})
	w := s.watch(t, "/demo/v1/studio?watch")
	require.Equal(t, "endOfSnapshot", event(w.next()))
	w.stop()
	<-ended
}

// A client that does not read is disconnected, and blocks no writer in the meantime.
func TestWatchEndsWithoutAReader(t *testing.T) {
	t.Parallel()
	types := catalog(t)
	s := memorySite(t, types, nil)
	ended := make(chan struct{})
	h := web.WithStallTimeout(web.NewHandler(s.client, types, nil), 100*time.Millisecond)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET /demo/v1/album?watch HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	for body := `{"data":{"title":"` + strings.Repeat("x", 500_000) + `"}}`; ; {
		select {
		case <-ended:
			return
		default:
			require.Equal(t, http.StatusOK, s.unchecked().put("/demo/v1/album/large", body).code)
		}
	}
}

// Over HTTP/2, an idle stream stays open although deadlines apply to idle streams.
func TestIdleWatchOverHTTP2(t *testing.T) {
	t.Parallel()
	withServerTimeout(t, func(seconds int) error {
		return readBookmarks(t, true, seconds, seconds*3/2, 2) // between two bookmarks pass all timeouts
	})
}

// Over HTTP/2, a stream without a reader ends.
func TestUnreadWatchOverHTTP2(t *testing.T) {
	t.Parallel()
	types := catalog(t)
	s := memorySite(t, types, nil)
	ended := make(chan struct{})
	h := web.WithStallTimeout(web.NewHandler(s.client, types, nil), 2*time.Second) // it also applies to the header
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		h.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/demo/v1/album?watch", nil)
	require.NoError(t, err)
	unread, err := server.Client().Do(r)
	require.NoError(t, err)
	defer unread.Body.Close()
	require.Equal(t, 2, unread.ProtoMajor)
	for body := `{"data":{"title":"` + strings.Repeat("x", 500_000) + `"}}`; ; {
		select {
		case <-ended:
			return
		default:
			require.Equal(t, http.StatusOK, s.unchecked().put("/demo/v1/album/large", body).code)
		}
	}
}
