package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// scrape returns the metrics at the admin address, as Prometheus parses them.
func (s *serverProcess) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	_, text := getText(s.t, "http://"+s.admin+"/metrics")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(s.t, err)
	return families
}

// series returns the values of a metric by the values of its labels.
func series(f *dto.MetricFamily) map[string]float64 {
	values := map[string]float64{}
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetValue())
		}
		values[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return values
}

// The metrics count requests, refusals and streams by the name of the token, and never contain a token.
func TestServeMetricsByCaller(t *testing.T) {
	t.Parallel()
	reader, hash := token()
	slow, slowHash := token()
	file := write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("tokens:\n  - {name: reader, sha256: %s, rules: [{types: [demo/*], may: [read, list]}]}\n"+
		"  - {name: slow, sha256: %s, rules: [{types: [demo/*], may: [read, list]}]}\n", hash, slowHash))
	s := serveStore(t, fileURL(t), "--tokens", file, "--admin", "127.0.0.1:0", "--rate", "1000")
	c := s.cli(t).with("--token", reader)
	c.ok("", "list", "demo/Greeting")
	require.Equal(t, cli.ExitFailed, c.run(configMap("a", "1"), "apply", "-f", "-").code)
	for path, want := range map[string]int{"/api/demo/v1/Greeting": http.StatusOK, "/api/other/v1/Greeting": http.StatusForbidden} {
		code, text := s.send("GET", path, reader, "")
		require.Equal(t, want, code, text)
	}
	code, _ := s.send("GET", "/api/demo/v1/Greeting", "another", "")
	require.Equal(t, http.StatusUnauthorized, code)
	watch, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.http+"/api/demo/v1/Greeting?watch", nil)
	require.NoError(t, err)
	watch.Header.Set("X-Consul-Token", slow)
	open, err := http.DefaultClient.Do(watch)
	require.NoError(t, err)
	t.Cleanup(func() { open.Body.Close() })

	got := s.scrape()
	requests := series(got["ashlar_server_requests_total"])
	require.Positive(t, requests["reader grpc"])
	require.EqualValues(t, 2, requests["reader http"])
	require.EqualValues(t, 1, requests[" http"])
	refusals := series(got["ashlar_server_refusals_total"])
	require.Positive(t, refusals["reader permission_denied"])
	require.EqualValues(t, 1, refusals[" unauthenticated"])
	require.EqualValues(t, 1, series(got["ashlar_server_streams"])["slow"])
	require.Contains(t, series(got["ashlar_server_buffered_bytes"]), "")
	require.Contains(t, got, "ashlar_server_reaper_tombstones")
	require.Len(t, series(got["ashlar_build_info"]), 1)
	_, text := getText(t, "http://"+s.admin+"/metrics")
	for _, secret := range []string{reader, slow, "another", hash} {
		require.NotContains(t, text, secret)
	}
}

// Profiles are at the address of --admin only, and have no command line.
func TestServeProfiles(t *testing.T) {
	t.Parallel()
	s := serveStore(t, fileURL(t), "--admin", "127.0.0.1:0")
	code, text := getText(t, "http://"+s.admin+"/debug/pprof/goroutine?debug=1")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, "goroutine profile")
	code, _ = getText(t, "http://"+s.admin+"/debug/pprof/cmdline")
	require.Equal(t, http.StatusNotFound, code)
	code, _ = s.get("/debug/pprof/goroutine")
	require.Equal(t, http.StatusNotFound, code)
}

// A long path is cut in the log.
func TestServeLogsShortLines(t *testing.T) {
	t.Parallel()
	s := serveStore(t, fileURL(t))
	code, _ := s.get("/api/demo/v1/Greeting/" + strings.Repeat("a", 50_000))
	require.Equal(t, http.StatusBadRequest, code)
	require.Less(t, len(s.waitForLog(`"path":"/api/demo/v1/Greeting/aaa`)), 2000)
}
