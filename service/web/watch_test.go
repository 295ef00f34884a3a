package web_test

import (
	"bufio"
	"context"
	"encoding/json"
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

// serverTimeout is a timeout of an HTTP server that a busy machine does not exceed by itself. A watch with a bookmark each second has
// outlived it after this number of bookmarks.
const (
	serverTimeout = 4 * time.Second
	outliving     = 6
)

// Bookmarks arrive at their interval, even after the server's timeouts.
func TestBookmarksOutliveServerTimeouts(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil, func(server *http.Server) {
		server.ReadTimeout, server.WriteTimeout = serverTimeout, serverTimeout
	})
	w := s.watch(t, "/demo/v1/studio?watch&bookmark=1")
	for seen := 0; seen < outliving; {
		ev := w.next()
		require.NotNil(t, ev)
		if event(ev) == "bookmark" {
			require.NotEmpty(t, ev["bookmark"].(map[string]any)["cursor"])
			seen++
		}
	}
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

// Over HTTP/2, an idle stream stays open although deadlines apply to idle streams, and a stream without a reader ends.
func TestWatchOverHTTP2(t *testing.T) {
	t.Parallel()
	types := catalog(t)
	s := memorySite(t, types, nil)
	ended := make(chan struct{})
	h := web.WithStallTimeout(web.NewHandler(s.client, types, nil), serverTimeout)
	impatient := web.WithStallTimeout(web.NewHandler(s.client, types, nil), 100*time.Millisecond)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/demo/v1/studio") {
			h.ServeHTTP(w, r)
			return
		}
		impatient.ServeHTTP(w, r)
		close(ended)
	}))
	server.EnableHTTP2 = true
	server.Config.WriteTimeout = serverTimeout
	server.StartTLS()
	t.Cleanup(server.Close)
	get := func(path string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		got, err := server.Client().Do(r)
		require.NoError(t, err)
		require.Equal(t, 2, got.ProtoMajor)
		return got
	}
	// Between two bookmarks pass all timeouts.
	quiet := get("/demo/v1/studio?watch&bookmark=6")
	defer quiet.Body.Close()
	lines := bufio.NewScanner(quiet.Body)
	for bookmarks := 0; bookmarks < 2; {
		require.True(t, lines.Scan(), "%v", lines.Err())
		require.NotContains(t, lines.Text(), `"error"`)
		if strings.Contains(lines.Text(), `"bookmark"`) {
			bookmarks++
		}
	}

	unread := get("/demo/v1/album?watch")
	defer unread.Body.Close()
	for body := `{"data":{"title":"` + strings.Repeat("x", 500_000) + `"}}`; ; {
		select {
		case <-ended:
			return
		default:
			require.Equal(t, http.StatusOK, s.unchecked().put("/demo/v1/album/large", body).code)
		}
	}
}
