package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// send sends a request to the server's HTTP address and returns the code and the body.
func (s *serverProcess) send(method, path, token, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.http+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	return answer.StatusCode, string(text)
}

// textOf is a body with a text as its payload.
const textOf = `{"data":{"@type":"type.googleapis.com/google.protobuf.StringValue","value":"hello"}}`

func TestServeHTTP(t *testing.T) {
	t.Parallel()
	s := serveStore(t, fileURL(t))
	code, text := s.send("PUT", "/api/demo/v1/Greeting/a", "", textOf)
	require.Equal(t, http.StatusOK, code, text)
	code, text = s.send("GET", "/api/demo/v1/Greeting/a", "", "")
	require.Equal(t, http.StatusOK, code, text)
	require.Contains(t, text, "hello")
	require.Equal(t, "demo/Greeting/a\n", s.cli(t).ok("", "get", "demo/Greeting", "a", "-o", "name"), "the same as by gRPC")
	code, _ = s.send("GET", "/api/demo/v1/Greeting/b", "", "")
	require.Equal(t, http.StatusNotFound, code)
	code, _ = s.send("GET", "/demo/v1/Greeting/a", "", "")
	require.Equal(t, http.StatusNotFound, code, "it is below /api")

	// A watch shows each event at once, and ends with the server.
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.http+"/api/demo/v1/Greeting?watch", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	events := bufio.NewScanner(answer.Body)
	for _, want := range []string{`"upsert"`, `"endOfSnapshot"`} {
		require.True(t, events.Scan())
		require.Contains(t, events.Text(), want)
	}
	code, text = s.send("DELETE", "/api/demo/v1/Greeting/a", "", "")
	require.Equal(t, http.StatusNoContent, code, text)
	require.True(t, events.Scan())
	require.Contains(t, events.Text(), `"delete"`)
	s.signal(syscall.SIGTERM)
	require.True(t, events.Scan())
	require.Contains(t, events.Text(), "the server is shutting down")
	require.False(t, events.Scan())
	require.NoError(t, events.Err(), "the stream was cut off")
	require.Equal(t, cli.ExitOK, s.end())
	require.Contains(t, s.logText(), `"path":"/api/demo/v1/Greeting/a"`)
}

func TestServeHTTPWithTokens(t *testing.T) {
	t.Parallel()
	reader, hash := token()
	s := serveStore(t, fileURL(t), "--tokens", write(t, t.TempDir(), "tokens.yaml",
		"tokens:\n  - name: reader\n    sha256: "+hash+"\n    rules:\n      - {types: [demo/*], may: [read, list]}\n"))
	for _, tc := range []struct {
		method, path, token string
		want                int
	}{
		{"GET", "/api/demo/v1/Greeting", "", http.StatusUnauthorized},
		{"GET", "/api/demo/v1/Greeting", "another", http.StatusUnauthorized},
		{"GET", "/api/demo/v1/Greeting", reader, http.StatusOK},
		{"GET", "/api/other/v1/Greeting", reader, http.StatusForbidden},
		{"PUT", "/api/demo/v1/Greeting/a", reader, http.StatusForbidden},
	} {
		body := ""
		if tc.method == "PUT" {
			body = textOf
		}
		code, text := s.send(tc.method, tc.path, tc.token, body)
		require.Equal(t, tc.want, code, "%+v: %s", tc, text)
	}
	s.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, s.end())
	require.Contains(t, s.logText(), `"caller":"reader"`)
	require.NotContains(t, s.logText(), reader)
}

// Metrics and probes can have their own address.
func TestServeAdmin(t *testing.T) {
	t.Parallel()
	s := serveStore(t, fileURL(t), "--admin", "127.0.0.1:0")
	s.cli(t).ok("", "list", "*")
	s.send("GET", "/api/demo/v1/Greeting", "", "")
	code, _ := s.get("/metrics")
	require.Equal(t, http.StatusNotFound, code)
	s.http = s.admin
	for path, want := range map[string]string{"/healthz": "the process runs\n", "/readyz": "ready\n"} {
		code, text := s.get(path)
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, want, text)
	}
	require.Positive(t, s.metric(`grpc_server_handled_total{grpc_code="OK",grpc_method="List",grpc_service="ashlar.resource.v1.ResourceService",grpc_type="unary"}`))
	require.Positive(t, s.metric(`http_request_duration_seconds_count{code="200",method="get"}`))
	_, text := s.get("/metrics")
	require.Regexp(t, `(?m)^db_client_operation_duration_seconds_count\{db_namespace="[^"]+",db_operation_name="(list|list_page)",db_system_name="sqlite"\} [1-9]`, text)
	code, _ = s.get("/api/demo/v1/Greeting")
	require.Equal(t, http.StatusNotFound, code, "no resources there")
}

// Traces are sent by OTLP to the endpoint in the environment, and not at all without one.
func TestServeTraces(t *testing.T) {
	var mu sync.Mutex
	spans := map[string]bool{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collectorpb.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &request) != nil {
			t.Errorf("%s: %v", r.URL, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, process := range request.GetResourceSpans() {
			for _, scope := range process.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					spans[span.GetName()] = true
				}
			}
		}
	}))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10") // milliseconds; spans that are sent at the end have a second
	s := serveStore(t, fileURL(t))
	s.cli(t).ok("", "list", "*")
	s.send("GET", "/api/demo/v1/Greeting", "", "")
	for _, name := range []string{"ashlar.resource.v1.ResourceService/List", "GET /api/", "list_page"} {
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return spans[name]
		}, waitTimeout, 10*time.Millisecond, name)
	}
	s.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, s.end())
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"list_page", "watch", "read", "scan"} { // of the store
		delete(spans, name)
	}
	require.Len(t, spans, 2, "%v", spans)
}
