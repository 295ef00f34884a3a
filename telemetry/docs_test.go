package telemetry

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"
)

var update = flag.Bool("update", false, "write the table of metrics in docs/metrics.md")

// prometheusName returns the name that Prometheus shows, as the exporter of `ashlar serve` translates it.
func prometheusName(t *testing.T, m *Metric) string {
	t.Helper()
	kinds := map[Kind]otlptranslator.MetricType{
		Counter: otlptranslator.MetricTypeMonotonicCounter, Gauge: otlptranslator.MetricTypeGauge, Histogram: otlptranslator.MetricTypeHistogram,
	}
	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	name, err := namer.Build(otlptranslator.Metric{Name: m.Name, Unit: m.Unit, Type: kinds[m.Kind]})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// docs/metrics.md lists all metrics, operations and types of errors. Run with -update after a change.
func TestDocumentedMetrics(t *testing.T) {
	t.Parallel()
	const file = "../docs/metrics.md"
	document, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(document)
	for name, text := range map[string]string{"metrics": metricsTable(t), "operations": operationsList(), "errors": errorsList()} {
		section := regexp.MustCompile(`(?s)(<!-- ` + name + ` -->\n).*?(<!-- end -->)`)
		if !section.MatchString(want) {
			t.Fatalf("%s has no section %q", file, name)
		}
		want = section.ReplaceAllString(want, "${1}"+text+"${2}")
	}
	if want == string(document) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the code; run go test ./telemetry -run TestDocumentedMetrics -update", file)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func metricsTable(t *testing.T) string {
	var table strings.Builder
	table.WriteString("| metric | Prometheus | kind | attributes | stores | meaning |\n|---|---|---|---|---|---|\n")
	for _, m := range Metrics() {
		var attrs []string
		for _, a := range m.Attributes {
			attrs = append(attrs, "`"+a+"`")
		}
		fmt.Fprintf(&table, "| `%s` | `%s` | %s, `%s` | %s | %s | %s |\n",
			m.Name, prometheusName(t, m), m.Kind, m.Unit, strings.Join(attrs, " "), strings.Join(m.Stores, ", "), m.Description)
	}
	return table.String()
}

func operationsList() string { return "`" + strings.Join(operationNames[:], "` `") + "`\n" }

func errorsList() string {
	var names []string
	for _, e := range errorTypes[1:] {
		names = append(names, "`"+e.name+"`")
	}
	return strings.Join(names, " ") + "\n"
}

// Names that begin with db. are names of the semantic conventions of OpenTelemetry, with their units and attributes; all other names
// begin with ashlar.
func TestNamesFollowSemanticConventions(t *testing.T) {
	t.Parallel()
	conventions := map[string]string{}
	for _, c := range []interface{ Name() string }{dbconv.ClientOperationDuration{}, dbconv.ClientConnectionCount{}, dbconv.ClientConnectionMax{}} {
		unit := reflect.ValueOf(c).MethodByName("Unit").Call(nil)[0].String()
		conventions[c.Name()] = unit
	}
	attributes := map[string]bool{
		string(semconv.DBSystemNameKey): true, string(semconv.DBNamespaceKey): true, string(semconv.DBOperationNameKey): true, string(semconv.ErrorTypeKey): true,
		string(semconv.DBClientConnectionStateKey): true, string(semconv.DBClientConnectionPoolNameKey): true,
	}
	for _, m := range Metrics() {
		unit, isConvention := conventions[m.Name]
		if isConvention && unit != m.Unit || !isConvention && !strings.HasPrefix(m.Name, "ashlar.") {
			t.Errorf("the metric %s, in %s, is neither in the semantic conventions nor begins with ashlar.", m.Name, m.Unit)
		}
		for _, a := range m.Attributes {
			if !attributes[a] && !strings.HasPrefix(a, "ashlar.") {
				t.Errorf("%s: the attribute %s is neither in the semantic conventions nor begins with ashlar.", m.Name, a)
			}
		}
	}
	for _, key := range []string{SystemName, Namespace, OperationName, ErrorType} {
		if !attributes[key] {
			t.Errorf("the attribute %s is not in the semantic conventions", key)
		}
	}
}
