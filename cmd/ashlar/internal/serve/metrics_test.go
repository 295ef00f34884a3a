package serve

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage/expiry"
)

var update = flag.Bool("update", false, "write the table of the server's metrics in docs/metrics.md")

// reportedMetrics returns the metrics of a server that has handled calls of every kind, without those of the Go runtime, the process and the store.
func reportedMetrics(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	m := newMetrics()
	m.measureBuild("v1.0.0")
	m.measureReaper(func() int { return 0 })
	m.measureExpiry(func() expiry.Stats { return expiry.Stats{} })
	m.registry.MustRegister(newBudget(1, true))
	m.callers.count("a", "grpc", refusalReasons[codes.PermissionDenied])
	m.callers.openStream("a")()
	m.duration.WithLabelValues("get", "200").Observe(1)
	done := func(context.Context, any) (any, error) { return nil, nil }
	if _, err := m.grpc.UnaryServerInterceptor()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.A/B"}, done); err != nil {
		t.Fatal(err)
	}
	all, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
		return strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_")
	})
}

// docs/metrics.md lists all metrics of the server. Run with -update after a change.
func TestDocumentedMetrics(t *testing.T) {
	t.Parallel()
	const file = "../../../../docs/metrics.md"
	document, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| metric | kind | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range reportedMetrics(t) {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, " "), f.GetHelp())
	}
	section := regexp.MustCompile(`(?s)(<!-- server -->\n).*?(<!-- end -->)`)
	if !section.Match(document) {
		t.Fatalf("%s has no section for the server", file)
	}
	want := section.ReplaceAllString(string(document), "${1}"+table.String()+"${2}")
	if want == string(document) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the code; run go test ./cmd/ashlar/internal/serve -run TestDocumentedMetrics -update", file)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
