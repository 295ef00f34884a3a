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
)

// Options of a backend. The zero value of each field means its default, as in the table of the URL's parameters.
type Options struct {
	// Schema that holds the store: "ashlar".
	Schema string
	// NoCreate refuses a store that is not there, or whose schema is older, instead of creating or upgrading it.
	NoCreate bool
	// MaxSize is the largest resource in bytes: 1 MiB.
	MaxSize int
	// Timeout of calls whose context has no deadline: 30 s.
	Timeout time.Duration
	// Outage is how long watches wait for a database that is away: 5 min.
	Outage time.Duration
	// Retention is how long changes are kept for watches to resume from: 1 h. At least it is driver.TokenLifetime, for which pages and the
	// snapshots of watches need them.
	Retention time.Duration
	// Poll is how often watches look for changes that nobody announced: 1 s, or 100 ms with NoListen.
	Poll time.Duration
	// NoListen does without LISTEN: changes of other processes are found by polling only.
	NoListen bool
	// Listen is where to LISTEN, if not where the pool connects to: LISTEN needs a session, which PgBouncer's transaction mode
	// does not give.
	Listen *pgx.ConnConfig
	// Replica, if set, answers eventual reads and lists where it is fresh enough. The caller closes it.
	Replica *pgxpool.Pool

	forgetful time.Duration // for tests: instead of Retention
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
	return d
}

const defaultSchema = "ashlar"

// maxOps bounds a transaction. Postgres itself has no such limit.
const maxOps = 512

func checkSchema(name string) error {
	if name == "" || len(name) > 63 || !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("%w: schema: expected a name of 1 to 63 bytes", storage.ErrInvalid)
	}
	if strings.Contains(name, "$body$") {
		return fmt.Errorf("%w: schema: $body$ stands around the text of functions", storage.ErrInvalid)
	}
	if strings.HasPrefix(name, "pg_") || name == "information_schema" {
		return fmt.Errorf("%w: schema: %q belongs to Postgres", storage.ErrInvalid, name)
	}
	return nil
}
