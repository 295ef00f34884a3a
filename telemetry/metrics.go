package telemetry

// Kind is the kind of a metric's instrument.
type Kind string

// The kinds of metrics.
const (
	Counter       Kind = "counter"
	UpDownCounter Kind = "updowncounter" // observed, as a Gauge
	Gauge         Kind = "gauge"
	Histogram     Kind = "histogram"
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
	SystemName      = "db.system.name"
	Namespace       = "db.namespace"
	OperationName   = "db.operation.name"
	ErrorType       = "error.type"
	ConnectionPool  = "db.client.connection.pool.name"
	ConnectionState = "db.client.connection.state"
)

// Attribute keys that the semantic conventions lack.
const (
	Outcome    = "ashlar.outcome"     // of a settled write: applied or not_applied
	SessionPID = "ashlar.session.pid" // the process of the server that serves a session
)

const (
	memory   = "memory"
	sqlite   = "SQLite"
	postgres = "Postgres"
	etcd     = "etcd"
	dynamoDB = "DynamoDB"
)

var allStores = []string{memory, sqlite, postgres, etcd, dynamoDB}

// Of calls.
var (
	OperationDuration = &Metric{
		Name: "db.client.operation.duration", Kind: Histogram, Unit: "s",
		Description: "Duration of calls that reached the database. Its count is the number of calls.",
		Attributes:  []string{OperationName, ErrorType},
		Stores:      allStores,
		buckets:     []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}
	BatchSize = &Metric{
		Name: "ashlar.batch.size", Kind: Histogram, Unit: "{call}",
		Description: "Calls in a request to the database.",
		Attributes:  []string{OperationName},
		Stores:      []string{sqlite, postgres, etcd, dynamoDB},
		buckets:     []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
	}
	Retries = &Metric{
		Name: "ashlar.retries", Kind: Counter, Unit: "{attempt}",
		Description: "Attempts of requests after the first one.",
		Stores:      []string{postgres, etcd, dynamoDB},
	}
	LostAnswers = &Metric{
		Name: "ashlar.write.lost", Kind: Counter, Unit: "{write}",
		Description: "Attempts of writes whose answer was lost. The store then determines their outcome.",
		Stores:      []string{postgres, etcd},
	}
	SettledWrites = &Metric{
		Name: "ashlar.write.settled", Kind: Counter, Unit: "{write}",
		Description: "Attempts of writes with a lost answer whose outcome was determined.",
		Attributes:  []string{Outcome},
		Stores:      []string{postgres, etcd},
	}
)

// Of watches.
var (
	Watches = &Metric{
		Name: "ashlar.watch.count", Kind: UpDownCounter, Unit: "{watch}",
		Description: "Open watches.",
		Stores:      allStores,
	}
	WatchBacklog = &Metric{
		Name: "ashlar.watch.backlog", Kind: Gauge, Unit: "By",
		Description: "Bytes of changes that the feed has published and the slowest watch has not read.",
		Stores:      allStores,
	}
	FeedLag = &Metric{
		Name: "ashlar.feed.lag", Kind: Gauge, Unit: "s",
		Description: "Time for which the feed has known of changes that it has not published, or has not reached the database or a relay.",
		Stores:      []string{postgres, etcd, dynamoDB},
	}
	FeedBlocked = &Metric{
		Name: "ashlar.feed.blocked", Kind: Gauge, Unit: "s",
		Description: "Time for which a pending commit has blocked the feed, by the session of that commit. No series: it is not blocked.",
		Attributes:  []string{SessionPID},
		Stores:      []string{postgres},
	}
)

// Of history.
var (
	HistorySize = &Metric{
		Name: "ashlar.history.size", Kind: Gauge, Unit: "{change}",
		Description: "Changes in history.",
		Stores:      []string{memory, sqlite, postgres},
	}
	HorizonAge = &Metric{
		Name: "ashlar.history.horizon.age", Kind: Gauge, Unit: "s",
		Description: "Age of the horizon, the oldest revision at which the store can be read.",
		Stores:      []string{postgres},
	}
	RetentionDuration = &Metric{
		Name: "ashlar.retention.duration", Kind: Histogram, Unit: "s",
		Description: "Duration of runs that discard old changes. Its count is the number of runs.",
		Attributes:  []string{ErrorType},
		Stores:      []string{postgres},
		buckets:     []float64{.001, .01, .1, 1, 10, 60},
	}
)

// Of resources.
var (
	ConnectionCount = &Metric{
		Name: "db.client.connection.count", Kind: UpDownCounter, Unit: "{connection}",
		Description: "Open connections.",
		Attributes:  []string{ConnectionPool, ConnectionState},
		Stores:      []string{sqlite, postgres},
	}
	ConnectionMax = &Metric{
		Name: "db.client.connection.max", Kind: UpDownCounter, Unit: "{connection}",
		Description: "Maximum number of connections.",
		Attributes:  []string{ConnectionPool},
		Stores:      []string{sqlite, postgres},
	}
	Capacity = &Metric{
		Name: "ashlar.dynamodb.capacity", Kind: Counter, Unit: "{unit}",
		Description: "Consumed capacity units.",
		Stores:      []string{dynamoDB},
	}
	RelaySubscribers = &Metric{
		Name: "ashlar.dynamodb.relay.subscribers", Kind: Gauge, Unit: "{subscriber}",
		Description: "Other handles that receive changes from this relay. No series: the handle is no relay.",
		Stores:      []string{dynamoDB},
	}
	RelaySubscriptions = &Metric{
		Name: "ashlar.dynamodb.relay.subscriptions", Kind: Counter, Unit: "{subscription}",
		Description: "Subscriptions of the handle to relays of other processes. Each one after the first follows the failure of a relay or of a connection, or a period without watches.",
		Stores:      []string{dynamoDB},
	}
)

// Metrics returns all metrics, in the order of the documentation.
func Metrics() []*Metric {
	return []*Metric{
		OperationDuration, BatchSize, Retries, LostAnswers, SettledWrites, Watches, WatchBacklog, FeedLag, FeedBlocked,
		HistorySize, HorizonAge, RetentionDuration, ConnectionCount, ConnectionMax, Capacity, RelaySubscribers, RelaySubscriptions,
	}
}
