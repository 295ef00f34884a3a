package telemetry

// Kind is the kind of a metric's instrument.
type Kind string

// The kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric describes a metric of a store. Every series also has the attributes db.system.name and db.namespace.
type Metric struct {
	Name        string
	Kind        Kind
	Unit        string // by UCUM
	Description string
	Attributes  []string
	// Stores are the adapters that report the metric.
	Stores []string

	buckets []float64
}

// Attribute keys of the semantic conventions of OpenTelemetry.
const (
	SystemName    = "db.system.name"
	Namespace     = "db.namespace"
	OperationName = "db.operation.name"
	ErrorType     = "error.type"
)

var everywhere = []string{"memory", "SQLite", "Postgres", "etcd", "DynamoDB"}

var (
	// OperationDuration is the duration of calls of the contract.
	OperationDuration = &Metric{
		Name: "db.client.operation.duration", Kind: Histogram, Unit: "s",
		Description: "Duration of calls that reached the database. Its count is the number of calls.",
		Attributes:  []string{OperationName, ErrorType},
		Stores:      everywhere,
		buckets:     []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}
)

// Metrics returns all metrics, in the order of the documentation.
func Metrics() []*Metric {
	return []*Metric{OperationDuration}
}
