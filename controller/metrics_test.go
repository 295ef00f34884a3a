package controller_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/controllertest"
	"github.com/ashlar-dev/storage/resourcepb"
)

// docs/controllers.md lists all metrics of a manager that holds a lease.
func TestDocumentedMetrics(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/controllers.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, reported []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(ashlar\\.[a-z._]+)`").FindAllSubmatch(page, -1) {
		documented = append(documented, string(m[1]))
	}
	controllertest.Run(t, nil, func(e *controllertest.Env) {
		reader := sdk.NewManualReader()
		provider := sdk.NewMeterProvider(sdk.WithReader(reader))
		thing := &resourcepb.Type{Group: "test", GroupVersion: "v1", Kind: "Thing"}
		e.Put(controllertest.ID(thing, "a"), wrapperspb.String("a"))
		e.Manager(&controller.Options{Meter: provider.Meter("test")}, controller.NewController("things", thing).
			WithReconciler(controller.ReconcileFunc(func(context.Context, controller.Runtime, controller.Request) error { return nil })))
		e.Settle()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				reported = append(reported, m.Name)
			}
		}
	})
	slices.Sort(documented)
	slices.Sort(reported)
	if !slices.Equal(documented, reported) {
		t.Errorf("docs/controllers.md lists %v, the manager reports %v", documented, reported)
	}
}
