package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// etcdHTTP is a client of etcd's JSON API.
type etcdHTTP struct {
	t      *testing.T
	base   string
	client *http.Client
}

func newEtcdHTTP(t *testing.T, s *serverProcess, config *tls.Config) *etcdHTTP {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	base := "http://" + s.grpc
	if config != nil {
		base = "https://" + s.grpc
	}
	return &etcdHTTP{t, base, &http.Client{Transport: transport, Timeout: waitTimeout}}
}

func (c *etcdHTTP) do(method, path, body string, header ...string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	require.NoError(c.t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := c.client.Do(r)
	require.NoError(c.t, err)
	return answer
}

// request returns the code and the body of a response.
func (c *etcdHTTP) request(method, path, body string, header ...string) (int, string) {
	c.t.Helper()
	answer := c.do(method, path, body, header...)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(c.t, err)
	return answer.StatusCode, string(text)
}

// post calls a method of etcd's API, which must succeed.
func (c *etcdHTTP) post(path, body string) map[string]any {
	c.t.Helper()
	code, text := c.request(http.MethodPost, path, body)
	require.Equal(c.t, http.StatusOK, code, text)
	answer := map[string]any{}
	require.NoError(c.t, json.Unmarshal([]byte(text), &answer))
	return answer
}

// next returns the next result of a stream.
func next(t *testing.T, lines *bufio.Scanner) map[string]any {
	t.Helper()
	require.True(t, lines.Scan(), "the stream has ended: %v", lines.Err())
	var line struct{ Result map[string]any }
	require.NoError(t, json.Unmarshal(lines.Bytes(), &line), lines.Text())
	return line.Result
}

// Requests of Patroni, probes and curl are answered at the port of gRPC, with and without TLS.
func TestServeEtcdByHTTP(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t)
	cert, key := authority.sign("server")
	roots := x509.NewCertPool()
	roots.AddCert(authority.cert)
	for name, tc := range map[string]struct {
		args   []string
		config *tls.Config
	}{
		"plain": {},
		"TLS":   {[]string{"--tls-cert", cert, "--tls-key", key}, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveEtcd(t, memoryURL(), tc.args...)
			c := newEtcdHTTP(t, s, tc.config)
			code, text := c.request(http.MethodGet, "/health", "")
			require.Equal(t, http.StatusOK, code)
			require.JSONEq(t, `{"health":"true","reason":""}`, text)
			code, text = c.request(http.MethodGet, "/version", "")
			require.Equal(t, http.StatusOK, code)
			require.Regexp(t, `^{"etcdserver":"3\.\d+\.\d+","etcdcluster":"3\.\d+\.0","storage":"3\.\d+\.0"}\n$`, text)
			for path, want := range map[string]string{"/livez": "ok\n", "/readyz": "ok\n"} {
				code, text = c.request(http.MethodGet, path, "")
				require.Equal(t, http.StatusOK, code)
				require.Equal(t, want, text)
			}
			etcdByJSON(t, c)
			_, err := etcdClient(t, s, tc.config).Get(t.Context(), "foo")
			require.NoError(t, err)
			_, text = c.request(http.MethodGet, "/metrics", "")
			require.Contains(t, text, `grpc_method="Txn"`)
			watch := c.do(http.MethodPost, "/v3/watch", `{"create_request":{"key":"Zm9v"}}`)
			defer watch.Body.Close()
			lines := bufio.NewScanner(watch.Body)
			require.Equal(t, true, next(t, lines)["created"])
			s.signal(syscall.SIGTERM)
			require.Equal(t, cli.ExitOK, s.end())
			for lines.Scan() {
				require.Contains(t, lines.Text(), "etcdserver: server stopped")
			}
		})
	}
}

func etcdByJSON(t *testing.T, c *etcdHTTP) {
	t.Helper()
	lease := c.post("/v3/lease/grant", `{"TTL":"3000"}`)
	require.Equal(t, "3000", lease["TTL"])
	id := lease["ID"].(string)
	c.post("/v3/kv/put", `{"key":"Zm9v","value":"YmFy","lease":"`+id+`"}`)
	kv := c.post("/v3/kv/range", `{"key":"Zm9v","serializable":true}`)["kvs"].([]any)[0].(map[string]any)
	require.Equal(t, "YmFy", kv["value"])
	require.Equal(t, id, kv["lease"])
	revision := kv["mod_revision"].(string)
	renewed := c.post("/v3/lease/keepalive", `{"ID":"`+id+`"}`)["result"].(map[string]any)
	require.Equal(t, "3000", renewed["TTL"])

	watch := c.do(http.MethodPost, "/v3/watch", `{"create_request":{"key":"Zm9v","start_revision":"`+revision+`","prev_kv":true}}`)
	defer watch.Body.Close()
	lines := bufio.NewScanner(watch.Body)
	require.Equal(t, true, next(t, lines)["created"])
	event := func() map[string]any { return next(t, lines)["events"].([]any)[0].(map[string]any) }
	require.Equal(t, "YmFy", event()["kv"].(map[string]any)["value"])
	swap := `{"compare":[{"key":"Zm9v","target":"MOD","result":"EQUAL","mod_revision":"` + revision + `"}],
		"success":[{"request_put":{"key":"Zm9v","value":"YmF6"}}],"failure":[{"request_range":{"key":"Zm9v"}}]}`
	require.Equal(t, true, c.post("/v3/kv/txn", swap)["succeeded"])
	require.Nil(t, c.post("/v3/kv/txn", swap)["succeeded"])
	require.Equal(t, "YmF6", event()["kv"].(map[string]any)["value"])
	require.Equal(t, "1", c.post("/v3/kv/deleterange", `{"key":"Zm9v"}`)["deleted"])
	require.Equal(t, "DELETE", event()["type"])
	c.post("/v3/lease/revoke", `{"ID":"`+id+`"}`)
	require.Nil(t, c.post("/v3/lease/keepalive", `{"ID":"`+id+`"}`)["result"].(map[string]any)["TTL"])

	code, text := c.request(http.MethodPost, "/v3/kv/range", `{"key":"Zm9v","revision":"999999"}`)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, text, "required revision is a future revision")
	code, text = c.request(http.MethodPost, "/v3/cluster/member/list", `{}`)
	require.Equal(t, http.StatusNotImplemented, code)
	require.Contains(t, text, "no members")
}

// Invalid requests are rejected: from web pages, too large, or not HTTP at all.
func TestServeEtcdHTTPRejectsMisuse(t *testing.T) {
	t.Parallel()
	s := serveEtcd(t, memoryURL())
	c := newEtcdHTTP(t, s, nil)
	put := `{"key":"Zm9v","value":"YmFy"}`
	for _, header := range [][]string{
		{"Origin", "http://example.com"}, {"Origin", "http://" + s.grpc}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-origin"},
	} {
		code, _ := c.request(http.MethodPost, "/v3/kv/put", put, header...)
		require.Equal(t, http.StatusForbidden, code, "%v", header)
	}
	for body, want := range map[string]int{
		`{"key":"Zm9v","value":"` + strings.Repeat("YmFy", 1<<19) + `"}`: http.StatusBadRequest,
		`{"key":"Zm9v","value":"` + strings.Repeat("YmFy", 1<<22) + `"}`: http.StatusBadRequest,
		strings.Repeat("[", 1<<20):                                       http.StatusBadRequest,
		`{"key":`:                                                        http.StatusBadRequest,
		`{"key":"?"}`:                                                    http.StatusBadRequest,
		``:                                                               http.StatusBadRequest,
		`{"key":"Zm9v","unknown":1,"value":"YmFy"}`: http.StatusOK,
	} {
		code, text := c.request(http.MethodPost, "/v3/kv/put", body)
		require.Equal(t, want, code, "%.40s: %.200s", body, text)
	}
	for path, want := range map[string]int{"/": 404, "/v2/keys": 404, "/v3/": 404, "/v3/kv/put": 501, "/debug/pprof/": 404} {
		code, _ := c.request(http.MethodGet, path, "")
		require.Equal(t, want, code, path)
	}
	code, _ := c.request(http.MethodDelete, "/health", "")
	require.Equal(t, http.StatusMethodNotAllowed, code)

	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	silent, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.grpc)
	require.NoError(t, err)
	defer silent.Close()
	for _, first := range []string{"", "P", "PRI", "PRI * ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI X HTTP", "GET /", "\x16\x03\x01\x00\x00\x00", "\x00\x00\x00\x00\x00\x00"} {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.grpc)
		require.NoError(t, err)
		_, err = conn.Write([]byte(first))
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		require.NoError(t, conn.SetDeadline(time.Now().Add(waitTimeout)))
		_, _ = io.Copy(io.Discard, conn) // until the server closes it
		require.NoError(t, conn.Close())
	}
	_, err = etcdClient(t, s, nil).Put(ctx, "a", "")
	require.NoError(t, err)
	code, _ = c.request(http.MethodGet, "/health", "")
	require.Equal(t, http.StatusOK, code)
	s.signal(syscall.SIGTERM) // the silent connection does not delay the end
	require.Equal(t, cli.ExitOK, s.end())
}

// Clients that negotiate no protocol are served by HTTP/1, as by etcd. Examples are probes of load balancers and older libraries.
func TestServeEtcdByHTTPWithoutALPN(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t)
	cert, key := authority.sign("server")
	roots := x509.NewCertPool()
	roots.AddCert(authority.cert)
	s := serveEtcd(t, memoryURL(), "--tls-cert", cert, "--tls-key", key)
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}).DialContext(ctx, "tcp", s.grpc)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(waitTimeout)))
	_, err = io.WriteString(conn, "GET /health HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), `{"health":"true"`)
}

// A client that never completes an HTTP/1 request loses its connection.
func TestServeEtcdHTTPRequestTimeout(t *testing.T) {
	t.Parallel()
	cert, key := newAuthority(t).sign("server")
	var servers []*serverProcess
	var conns []net.Conn
	begin := func(address string, overTLS bool) (net.Conn, error) {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		if overTLS {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		_, err = io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: x\r\n")
		return conn, err
	}
	for name, args := range map[string][]string{"plain": nil, "TLS": {"--tls-cert", cert, "--tls-key", key}} {
		s := serveEtcd(t, memoryURL(), args...)
		servers = append(servers, s)
		for range 100 {
			conn, err := begin(s.grpc, name == "TLS")
			for range 5 {
				if err == nil {
					break
				}
				conn, err = begin(s.grpc, name == "TLS") // a late request finds its connection closed
			}
			require.NoError(t, err, name)
			conns = append(conns, conn)
		}
	}
	for _, conn := range conns { // the servers wait at the same time
		require.NoError(t, conn.SetDeadline(time.Now().Add(waitTimeout/4)))
		_, err := io.ReadAll(conn)
		require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the server at %s has not closed a connection with an incomplete request", conn.RemoteAddr())
	}
	for _, s := range servers {
		s.signal(syscall.SIGTERM)
		require.Equal(t, cli.ExitOK, s.end())
	}
}
