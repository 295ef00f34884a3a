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

// stream is a watch as a client sees it.
type stream struct {
	t    *testing.T
	code int
	out  *bufio.Reader
	stop func()
}

// watch opens a stream. It is checked line by line against the document.
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

// next returns the next line, nil at the end.
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

// event returns what happened, and to which resource.
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

// A watch sends a snapshot and every change, each at once, and another one goes on after any of them, however quiet it is.
func TestWatch(t *testing.T) {
	t.Parallel()
	everyWay(t, catalog(t), func(t *testing.T, s *site) {
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

// A stream that has nothing to send stands, and its client knows; one that is refused has the code of the error.
func TestWatchIsRefusedByCode(t *testing.T) {
	t.Parallel()
	everyWay(t, catalog(t), func(t *testing.T, s *site) {
		first := s.watch(t, "/demo/v1/studio?watch")
		cursor := first.next()["cursor"].(string)
		require.Equal(t, http.StatusOK, s.watch(t, "/demo/v1/studio?watch&cursor="+cursor).code, "quiet, but it answers")
		require.Equal(t, http.StatusBadRequest, s.watch(t, "/demo/v1/studio?watch&cursor=garbage").code)
		require.Equal(t, http.StatusBadRequest, s.watch(t, "/demo/v1/studio?watch&ns=x").code)
		require.Equal(t, http.StatusBadRequest, s.watch(t, "/demo/v1/studio?watch&bookmark=0").code)
		require.Equal(t, http.StatusBadRequest, s.watch(t, "/demo/v1/studio?watch&limit=3").code)
		require.Equal(t, http.StatusBadRequest, s.watch(t, "/demo/v1/studio?watch=false").code)
		require.Equal(t, http.StatusBadRequest, s.get("/demo/v1/studio?cursor="+cursor).code, "without watch")
		require.Equal(t, http.StatusMethodNotAllowed, s.do(http.MethodHead, "/demo/v1/studio?watch", "").code)
	})
}

// Bookmarks come by themselves, also where the time limits of the server are over.
func TestBookmarksOutliveTimeLimits(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil, func(server *http.Server) {
		server.ReadTimeout, server.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond
	})
	w := s.watch(t, "/demo/v1/studio?watch&bookmark=1")
	for seen := 0; seen < 3; {
		ev := w.next()
		require.NotNil(t, ev)
		if event(ev) == "bookmark" {
			require.NotEmpty(t, ev["bookmark"].(map[string]any)["cursor"])
			seen++
		}
	}
}

// A server that stops ends its streams with an error that says so, and waits for nothing else.
func TestWatchEndsWithTheServer(t *testing.T) {
	t.Parallel()
	everyWay(t, catalog(t), func(t *testing.T, s *site) {
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

// A stream ends with an error when the context of its request does, as that of a server that is about to stop.
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

// A client that leaves leaves nothing behind: the handler returns, and so does what received for it.
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

// A client that does not read is disconnected, and keeps nobody from writing in the meantime.
func TestWatchEndsWithoutAReader(t *testing.T) {
	t.Parallel()
	types := catalog(t)
	s := memorySite(t, types, nil)
	ended := make(chan struct{})
	h := web.WithStall(web.NewHandler(s.client, types, nil), 100*time.Millisecond)
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

// By HTTP/2, where a deadline ends a stream that has nothing to write, too, a quiet stream stands, and one that nobody reads ends.
func TestWatchByHTTP2(t *testing.T) {
	t.Parallel()
	types := catalog(t)
	s := memorySite(t, types, nil)
	ended := make(chan struct{}, 2)
	h := web.WithStall(web.NewHandler(s.client, types, nil), 100*time.Millisecond)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		ended <- struct{}{}
	}))
	server.EnableHTTP2 = true
	server.Config.WriteTimeout = 500 * time.Millisecond
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
	quiet := get("/demo/v1/studio?watch&bookmark=1")
	defer quiet.Body.Close()
	lines := bufio.NewScanner(quiet.Body)
	for bookmarks := 0; bookmarks < 3; {
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
