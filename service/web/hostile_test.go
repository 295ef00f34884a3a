package web_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/service/web"
)

// answerTo sends the text of a request, which need not be complete, and returns the answer.
func answerTo(t *testing.T, s *httptest.Server, request string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprint(conn, request)
	require.NoError(t, err)
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close() // first: Body.Close reads the rest
		got.Body.Close()
	})
	return got
}

// tokenSite returns a server that requires the token "root", with a short timeout of bodies.
func tokenSite(t *testing.T) *httptest.Server { return slowBodySite(t, 100*time.Millisecond) }

// slowBodySite is tokenSite with a time for the body of a request.
func slowBodySite(t *testing.T, limit time.Duration) *httptest.Server {
	t.Helper()
	types := catalog(t)
	s := memorySite(t, types, nil)
	server := httptest.NewServer(web.WithBodyTimeout(web.NewHandler(s.client, types, &web.Options{Authenticate: rootOnly}), limit))
	t.Cleanup(server.Close)
	return server
}

func rootOnly(_ context.Context, token string) error {
	if token != "root" {
		return status.Error(codes.Unauthenticated, "a token is required")
	}
	return nil
}

// A request without a valid token is answered before its body arrives, and its connection is closed. A body that does not arrive in time is
// refused.
func TestBodiesThatDoNotArrive(t *testing.T) {
	t.Parallel()
	server := tokenSite(t)
	const request = "PUT /demo/v1/album/a HTTP/1.1\r\nHost: x\r\n%sContent-Length: 1000000\r\n\r\n{"

	got := answerTo(t, server, fmt.Sprintf(request, ""))
	require.Equal(t, http.StatusUnauthorized, got.StatusCode)
	require.Equal(t, "Bearer", got.Header.Get("WWW-Authenticate"))
	require.True(t, got.Close, "the connection stays open for a refused body")
	require.Equal(t, http.StatusRequestTimeout, answerTo(t, server, fmt.Sprintf(request, "x-consul-token: root\r\n")).StatusCode)
}

// A body that the operation does not read is bounded in time, too: net/http reads it before it sends the answer.
func TestUnreadBodiesThatDoNotArrive(t *testing.T) {
	t.Parallel()
	server := tokenSite(t)
	for request, want := range map[string]int{
		"GET /demo/v1/album":      http.StatusOK,
		"DELETE /demo/v1/album/a": http.StatusNoContent,
		"GET /nothing":            http.StatusNotFound,
		"GET /openapi.json":       http.StatusOK,
	} {
		got := answerTo(t, server, request+" HTTP/1.1\r\nHost: x\r\nx-consul-token: root\r\nContent-Length: 10\r\n\r\n{")
		require.Equal(t, want, got.StatusCode, request)
		require.True(t, got.Close, "%s: the connection stays open for the rest of its body", request)
	}
}

// A body that arrived in time does not end a watch. The time of the body is longer after a failure, because it may have passed before the watch
// has begun.
func TestWatchWithBody(t *testing.T) {
	t.Parallel()
	for limit := 100 * time.Millisecond; ; limit *= 20 {
		err := watchWithBody(t, limit)
		if err == nil {
			return
		}
		require.Less(t, limit, 40*time.Second, "%v", err)
	}
}

// watchWithBody reads a watch until the time of its body has passed.
func watchWithBody(t *testing.T, limit time.Duration) error {
	t.Helper()
	server := slowBodySite(t, limit)
	got := answerTo(t, server, "GET /demo/v1/album?watch&bookmark=1 HTTP/1.1\r\nHost: x\r\nx-consul-token: root\r\nContent-Length: 2\r\n\r\n{}")
	require.Equal(t, http.StatusOK, got.StatusCode)
	events := bufio.NewScanner(got.Body)
	for n := range int(limit/time.Second) + 3 { // bookmarks follow each second
		if !events.Scan() {
			return fmt.Errorf("the watch ended: %w", events.Err())
		}
		if want := map[bool]string{true: "endOfSnapshot", false: "bookmark"}[n == 0]; !strings.Contains(events.Text(), want) {
			return fmt.Errorf("got %s, expected %s", events.Text(), want)
		}
	}
	return nil
}

// A refusal closes only the connection whose body would follow: not one of HTTP/2, which has other streams, and not one without a body.
func TestRefusalsKeepConnections(t *testing.T) {
	t.Parallel()
	types := catalog(t)
	h := web.NewHandler(memorySite(t, types, nil).client, types, &web.Options{Authenticate: rootOnly})
	for name, tc := range map[string]struct {
		major int
		body  string
		want  string
	}{
		"HTTP/1 with a body":    {1, "{}", "close"},
		"HTTP/1 without a body": {1, "", ""},
		"HTTP/2 with a body":    {2, "{}", ""},
	} {
		r := httptest.NewRequest(http.MethodPut, "/demo/v1/album/a", strings.NewReader(tc.body))
		r.ProtoMajor = tc.major
		got := httptest.NewRecorder()
		h.ServeHTTP(got, r)
		require.Equal(t, http.StatusUnauthorized, got.Code, name)
		require.Equal(t, tc.want, got.Header().Get("Connection"), name)
	}
}

// A panic in a hook that a watch runs is a panic of the goroutine that serves the request, so that a server can recover it.
func TestPanicInHookOfWatch(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	types, err := registry.New(registry.Type{
		Type: typeOf("Album"), Proto: albumMessage(t).New().Interface(), Scope: registry.ScopeNamespace,
		MayRead: func(registry.Caller, *resourcepb.ID, *resourcepb.Resource) error {
			if failing.Load() {
				panic("the hook fails")
			}
			return nil
		},
	})
	require.NoError(t, err)
	s := memorySite(t, types, nil)
	require.Equal(t, http.StatusOK, s.unchecked().put("/demo/v1/album/a", `{}`).code)
	failing.Store(true)
	h := web.NewHandler(s.client, types, nil)
	recovered := make(chan any, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { recovered <- recover() }()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	got, err := http.Get(server.URL + "/demo/v1/album?watch")
	require.NoError(t, err)
	t.Cleanup(func() { got.Body.Close() })
	require.ErrorContains(t, (<-recovered).(error), "the hook fails")
}
