package web_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
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
	t.Cleanup(func() { got.Body.Close() })
	return got
}

// A request without a valid token is answered before its body arrives, and its connection is closed. A body that does not arrive in time is
// refused.
func TestBodiesThatDoNotArrive(t *testing.T) {
	t.Parallel()
	types := catalog(t)
	s := memorySite(t, types, nil)
	server := httptest.NewServer(web.WithBodyTimeout(web.NewHandler(s.client, types, &web.Options{Authenticate: func(_ context.Context, token string) error {
		if token != "root" {
			return status.Error(codes.Unauthenticated, "a token is required")
		}
		return nil
	}}), 100*time.Millisecond))
	t.Cleanup(server.Close)
	const request = "PUT /demo/v1/album/a HTTP/1.1\r\nHost: x\r\n%sContent-Length: 1000000\r\n\r\n{"

	got := answerTo(t, server, fmt.Sprintf(request, ""))
	require.Equal(t, http.StatusUnauthorized, got.StatusCode)
	require.Equal(t, "Bearer", got.Header.Get("WWW-Authenticate"))
	require.True(t, got.Close, "the connection stays open for a refused body")
	require.Equal(t, http.StatusRequestTimeout, answerTo(t, server, fmt.Sprintf(request, "x-consul-token: root\r\n")).StatusCode)
}

// A panic in a hook that a watch runs is a panic of the goroutine that serves the request, so that a server can recover it.
func TestPanicInHookOfWatch(t *testing.T) {
	t.Parallel()
	types, err := registry.New(registry.Type{
		Type: typeOf("Album"), Proto: albumMessage(t).New().Interface(), Scope: registry.ScopeNamespace,
		MayRead: func(registry.Caller, *resourcepb.ID, *resourcepb.Resource) error { panic("the hook fails") },
	})
	require.NoError(t, err)
	s := memorySite(t, types, nil)
	require.Equal(t, http.StatusOK, s.unchecked().put("/demo/v1/album/a", `{}`).code)
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
