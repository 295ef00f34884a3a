package telemetry

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// queries returns the PromQL expressions of the alert rules and of the dashboard.
func queries(t *testing.T) (all []string) {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	text, err := os.ReadFile("../docs/monitoring/alerts.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &rules)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all = append(all, r.Expr)
		}
	}
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	text, err = os.ReadFile("../docs/monitoring/dashboard.json")
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) < 20 {
		t.Fatalf("found %d queries: the search is broken", len(all))
	}
	return all
}

// serverMetrics returns the names of the metrics of a server. A test of the server compares docs/metrics.md with them.
func serverMetrics(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "<!-- server -->")
	section, _, _ = strings.Cut(section, "<!-- end -->")
	for _, row := range regexp.MustCompile("(?m)^\\| `(ashlar_[a-z_]+)` ").FindAllStringSubmatch(section, -1) {
		names = append(names, row[1])
	}
	if len(names) == 0 {
		t.Fatal("docs/metrics.md has no metrics of a server")
	}
	return names
}

// The alert rules and the dashboard use only metrics, attributes, operations and types of errors that exist, and the dashboard shows every
// metric.
func TestMonitoringNamesMetrics(t *testing.T) {
	t.Parallel()
	underscores := strings.NewReplacer(".", "_")
	names := map[string]bool{}
	for _, n := range serverMetrics(t) {
		names[n] = true
	}
	for _, m := range Metrics() {
		name := prometheusName(t, m)
		if m.Kind == Histogram {
			names[name+"_count"], names[name+"_sum"], names[name+"_bucket"] = true, true, true
		} else {
			names[name] = true
		}
		for _, a := range append([]string{SystemName, Namespace}, m.Attributes...) {
			names[underscores.Replace(a)] = true
		}
	}
	errorNames := make([]string, len(errorTypes))
	for i, e := range errorTypes {
		errorNames[i] = e.name
	}
	name := regexp.MustCompile(`\b(?:ashlar|db|error)_[a-z_]+`)
	value := regexp.MustCompile(`(error_type|db_operation_name)(?:=~|!=|=)"([^"]*)"`)
	used := strings.Join(queries(t), "\n")
	for _, n := range name.FindAllString(used, -1) {
		if !names[n] {
			t.Errorf("a query uses %s, which no store reports", n)
		}
	}
	for _, v := range value.FindAllStringSubmatch(used, -1) {
		known := errorNames
		if v[1] == "db_operation_name" {
			known = operationNames[:]
		}
		for alternative := range strings.SplitSeq(v[2], "|") {
			if !slices.Contains(known, alternative) {
				t.Errorf("a query compares %s with %q, which no store reports", v[1], alternative)
			}
		}
	}
	for _, m := range Metrics() {
		if !strings.Contains(used, prometheusName(t, m)) {
			t.Errorf("no query uses %s", m.Name)
		}
	}
	for _, n := range serverMetrics(t) {
		if !strings.Contains(used, n) {
			t.Errorf("no query uses %s", n)
		}
	}
}
