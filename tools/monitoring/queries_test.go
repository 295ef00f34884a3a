package monitoring

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"go.yaml.in/yaml/v3"
)

// scrapeInterval is the time between two scrapes, as Prometheus sees them.
const scrapeInterval = 15 * time.Second

// work makes the server handle calls of every kind: accepted, refused, conflicting, and a watch that stays open.
func (s *server) work(round int) {
	name := fmt.Sprintf("/api/demo/v1/Thing/a%d", round)
	s.expect(http.StatusOK, http.MethodPut, name, token, `{}`)
	s.expect(http.StatusConflict, http.MethodPut, name+"?version=old", token, `{}`)
	s.expect(http.StatusNotFound, http.MethodGet, "/api/demo/v1/Thing/none", token, "")
	s.expect(http.StatusOK, http.MethodGet, "/api/demo/v1/Thing?consistent", token, "")
	s.expect(http.StatusForbidden, http.MethodGet, "/api/other/v1/Thing", token, "")
	s.expect(http.StatusUnauthorized, http.MethodGet, "/api/demo/v1/Thing", "another", "")
	s.expect(http.StatusNoContent, http.MethodDelete, name, token, "")
}

// scrape returns the samples of the server by series, as Prometheus parses them.
func (s *server) scrape() map[string]float64 {
	s.t.Helper()
	got := s.send(s.t.Context(), http.MethodGet, s.admin+"/metrics", "", "")
	defer got.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(got.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.Now()}, slices.Collect(maps.Values(families))...)
	if err != nil {
		s.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, sample := range samples {
		values[sample.Metric.String()] = float64(sample.Value)
	}
	return values
}

// load returns the scrapes as input of Prometheus' test storage.
func load(scrapes []map[string]float64) string {
	var text strings.Builder
	fmt.Fprintf(&text, "load %v\n", scrapeInterval)
	all := map[string]float64{}
	for _, scrape := range scrapes {
		maps.Copy(all, scrape)
	}
	for _, series := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "  %s", series)
		for _, scrape := range scrapes {
			value, ok := scrape[series]
			switch {
			case !ok:
				text.WriteString(" _")
			case math.IsInf(value, 1):
				text.WriteString(" +Inf")
			default:
				text.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64))
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// readFile parses a file of docs/monitoring.
func readFile(t *testing.T, name string, parse func([]byte, any) error, v any) {
	t.Helper()
	text, err := os.ReadFile("../../docs/monitoring/" + name)
	if err == nil {
		err = parse(text, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// queries returns the queries of the dashboard and of the alert rules.
func queries(t *testing.T) (dashboard, alerts []string) {
	t.Helper()
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	readFile(t, "dashboard.json", json.Unmarshal, &d)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			dashboard = append(dashboard, strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
		}
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	readFile(t, "alerts.yaml", yaml.Unmarshal, &rules)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Expr)
		}
	}
	if len(dashboard) < 25 || len(alerts) < 5 {
		t.Fatalf("%d queries of the dashboard, %d of alerts: the search is broken", len(dashboard), len(alerts))
	}
	return dashboard, alerts
}

// ofOtherStores returns the metrics that SQLite does not report, by their names in Prometheus.
func ofOtherStores(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `[a-z._]+` \\| `([a-z_]+)` \\|[^|]*\\|[^|]*\\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(row[2], "SQLite") {
			names = append(names, row[1])
		}
	}
	if len(names) == 0 {
		t.Fatal("docs/metrics.md has no table of metrics")
	}
	return names
}

// Prometheus evaluates every query of the dashboard and of the alert rules against scrapes of a server, without a warning. The queries of the
// dashboard find something, unless SQLite does not report the metric.
func TestQueries(t *testing.T) {
	s := startServer(t)
	watch := s.send(t.Context(), http.MethodGet, s.http+"/api/demo/v1/Thing?watch", token, "")
	defer watch.Body.Close()
	if first, err := io.ReadAll(io.LimitReader(watch.Body, 1)); err != nil || watch.StatusCode != http.StatusOK {
		t.Fatal(watch.StatusCode, first, err)
	}
	var scrapes []map[string]float64
	for round := range 5 {
		s.work(round)
		scrapes = append(scrapes, s.scrape())
	}
	at := time.Unix(0, 0).UTC().Add(time.Duration(len(scrapes)-1) * scrapeInterval)
	storage := promqltest.LoadedStorage(t, load(scrapes))
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	dashboard, alerts := queries(t)
	absent := ofOtherStores(t)
	for i, query := range append(dashboard, alerts...) {
		q, err := engine.NewInstantQuery(t.Context(), storage, nil, query, at)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		result := q.Exec(t.Context())
		warnings, infos := result.Warnings.AsStrings(query, 10, 10)
		if result.Err != nil || len(warnings)+len(infos) > 0 {
			t.Errorf("%s: %v, %q, %q", query, result.Err, warnings, infos)
			continue
		}
		found, _ := result.Value.(promql.Vector)
		hasOther := slices.ContainsFunc(absent, func(name string) bool { return strings.Contains(query, name) })
		if i < len(dashboard) && len(found) == 0 && !hasOther {
			t.Errorf("%s finds nothing", query)
		}
		q.Close()
	}
}
