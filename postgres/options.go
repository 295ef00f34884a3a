package postgres

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/telemetry"
)

// Options configures a backend. The zero value of a field selects its default, which equals the default of the URL parameter.
type Options struct {
	// Schema is the name of the schema that contains the store. Default: "ashlar".
	Schema string
	// NoCreate makes New refuse a store that does not exist, instead of creating it.
	NoCreate bool
	// Upgrade makes New upgrade a store with an older schema. Without it, New opens a store from version migrations.Oldest on, and
	// refuses an older one.
	Upgrade bool
	// MaxSize is the maximum size of a resource in bytes. Default: 1 MiB.
	MaxSize int
	// Timeout bounds calls whose context has no deadline. Default: 30 s.
	Timeout time.Duration
	// Outage is how long watches wait for an unreachable database before they end. Default: 5 min.
	Outage time.Duration
	// Retention is how long changes are kept, so that watches can resume. Default: 1 h. The minimum is driver.TokenLifetime,
	// because pages and the snapshots of watches need the changes for as long.
	Retention time.Duration
	// Poll is the interval of polls for changes without a notification. Default: 1 s, or 100 ms with NoListen.
	Poll time.Duration
	// Latency is the maximum time for which the feed gathers changes of other processes under load, before it reads them together.
	// Default: 20 ms.
	Latency time.Duration
	// NoListen disables LISTEN: changes of other processes are found by polling only.
	NoListen bool
	// Listen configures the connection for LISTEN, if it differs from the connections of the pool. LISTEN needs a session, which
	// the transaction mode of PgBouncer does not provide.
	Listen *pgx.ConnConfig
	// Replica, if set, answers eventual reads and lists while it is fresh enough. The caller closes it.
	Replica *pgxpool.Pool
	// Telemetry receives what the store reports.
	Telemetry telemetry.Options

	forgetful time.Duration // overrides Retention, for tests
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	d.Schema = cmp.Or(d.Schema, defaultSchema)
	if d.MaxSize <= 0 || d.MaxSize > driver.MaxSize {
		d.MaxSize = driver.MaxSize
	}
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	or(&d.Timeout, 30*time.Second)
	or(&d.Outage, 5*time.Minute)
	or(&d.Retention, time.Hour)
	d.Retention = cmp.Or(d.forgetful, max(d.Retention, driver.TokenLifetime))
	if d.NoListen {
		or(&d.Poll, 100*time.Millisecond)
	}
	or(&d.Poll, time.Second)
	or(&d.Latency, 20*time.Millisecond)
	return d
}

const defaultSchema = "ashlar"

// maxOps is the maximum number of operations in a transaction. Postgres itself has no such limit.
const maxOps = 512

func checkSchema(name string) error {
	if name == "" || len(name) > 63 || !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("%w: schema: expected a name of 1 to 63 bytes", storage.ErrInvalid)
	}
	if strings.Contains(name, "$body$") {
		return fmt.Errorf("%w: schema: the name must not contain $body$, which quotes the functions of the store", storage.ErrInvalid)
	}
	if strings.HasPrefix(name, "pg_") || name == "information_schema" {
		return fmt.Errorf("%w: schema: the name %q is reserved by Postgres", storage.ErrInvalid, name)
	}
	return nil
}
