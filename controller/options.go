package controller

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/ashlar-dev/storage"
)

// Options configures a Manager. The zero value of each field selects its default.
type Options struct {
	// Leases is the backend of the service's store, and holds the leases of controllers. Without it only PlacementEachServer is possible.
	Leases storage.Backend
	// Name is the name of this process in leases: the host and the process id.
	Name string
	// LeaseTTL is the lifetime of a lease that is not renewed. Default: 15 s. Register refuses controllers with a lease if it is below 1 s.
	LeaseTTL time.Duration
	// Drain is the time that running reconciles have after Run was stopped, before their contexts end: 30 s. If it is negative, they end at once.
	Drain time.Duration
	// Meter creates the instruments of docs/controllers.md; nil for no metrics. Managers in one process need different meters.
	Meter metric.Meter
	// Logger gets errors and changes of leases: slog.Default().
	Logger *slog.Logger
}
