package dynamodb

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/telemetry"
)

// Options select the store and configure the backend. The zero values are sensible, except for Table.
type Options struct {
	// Table is the table's name.
	Table string
	// Prefix distinguishes the stores of a table. The empty prefix is a store as well.
	Prefix string
	// NoCreate makes opening fail if the table, or the store in it, does not exist.
	NoCreate bool
	// Buckets is the number of partition keys that share the resources of a type, a power of two up to 256. Each accepts 1,000 write
	// units a second, and a list queries those that the type has used. It is fixed when the store is created, and 32 by default. 0 accepts
	// any existing store; opening an existing store with another number fails.
	Buckets int
	// PointInTimeRecovery enables point-in-time recovery on a table that is created.
	PointInTimeRecovery bool
	// Tags are set on a table that is created.
	Tags map[string]string

	// Timeout bounds calls whose context has no deadline. The default is 30 seconds.
	Timeout time.Duration
	// MaxSize is the size limit of a resource in bytes. The default is 1 MiB, which is also the maximum.
	MaxSize int
	// Outage is how long watches survive without the stream. The default is 5 minutes, the maximum 12 hours: half of a stream's
	// retention.
	Outage time.Duration
	// Poll is the pause between two reads of the stream during activity. The default is 200 milliseconds.
	Poll time.Duration
	// IdlePoll is the longest pause between two reads of the stream without activity. The default is 2 seconds.
	IdlePoll time.Duration

	// FenceWait is the duration of closing the store for writing, during which it stays open. The default is 16 minutes. AWS
	// accepts a request for 15 minutes after it was signed, so only then is every request in flight known to be refused by the
	// fence. A shorter time is for emulators, and must be the same for all handles of a store.
	FenceWait time.Duration

	// Relay, if set, makes watches receive the changes from a relay: one of two processes that read the stream for all others. It
	// requires an import of package dynamodb/relay.
	Relay *RelayOptions

	// Telemetry receives what the store reports.
	Telemetry telemetry.Options

	// keepTable restricts creation to the store: the table was set up, or not, by the handle that opens this one.
	keepTable bool

	// Spent, if set, receives the capacity units that each request consumed. It is called concurrently.
	Spent func(units float64)
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case !tableName.MatchString(o.Table):
		return o, fmt.Errorf("%w: table name %q: expected 3 to 255 letters, digits, underscores, hyphens and dots", storage.ErrInvalid, o.Table)
	case len(o.Prefix) > 255 || !utf8.ValidString(o.Prefix) || strings.Contains(o.Prefix, "\x00"):
		return o, fmt.Errorf("%w: prefix: expected at most 255 bytes of UTF-8 without NUL", storage.ErrInvalid)
	case o.Buckets < 0 || o.Buckets > maxBuckets || o.Buckets&(o.Buckets-1) != 0:
		return o, fmt.Errorf("%w: buckets: expected a power of two up to %d", storage.ErrInvalid, maxBuckets)
	case o.Relay != nil && len(o.Prefix) > 255-len(directorySuffix):
		return o, fmt.Errorf("%w: prefix: expected at most %d bytes with a relay", storage.ErrInvalid, 255-len(directorySuffix))
	case o.Relay != nil && o.Relay.TTL != 0 && o.Relay.TTL < time.Second:
		return o, fmt.Errorf("%w: relay-ttl: expected at least 1s", storage.ErrInvalid)
	case o.Outage > maxOutage:
		return o, fmt.Errorf("%w: outage: expected at most %v", storage.ErrInvalid, maxOutage)
	}
	set := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	set(&o.Timeout, 30*time.Second)
	set(&o.Outage, 5*time.Minute)
	set(&o.Poll, 200*time.Millisecond)
	set(&o.IdlePoll, 2*time.Second)
	set(&o.FenceWait, request.SignatureTTL+time.Minute)
	if o.Relay != nil {
		relay := *o.Relay
		set(&relay.TTL, 15*time.Second)
		o.Relay = &relay
	}
	return o, nil
}

// RelayOptions configure how a handle receives changes from relays, and whether it may be one.
type RelayOptions struct {
	// Listen is the address at which the handle serves other processes while it is a relay. Without it the handle is never a relay.
	Listen string
	// Advertise is the address of Listen for other processes. The default is Listen, unless that is a loopback address or has no
	// host.
	Advertise string
	// Cert and Key are files of a certificate for Listen, and CA is a file of the certificates that a relay's certificate must lead to.
	// Without them a relay creates a key, and publishes its hash in the table.
	Cert, Key, CA string
	// TokenFile is a file with the token that subscribers send. A relay also accepts the further tokens in the file, one on each line. Without
	// a file a relay publishes a random token in the table.
	TokenFile string
	// TTL is how long a relay that has failed is waited for, before another process replaces it. The default is 15 seconds. After a third
	// of it without a message, a subscriber uses the other relay.
	TTL time.Duration
}

// silence returns how long a subscriber waits for a message of its relay.
func (o *RelayOptions) silence() time.Duration { return max(o.TTL/3, time.Second) }

// directorySuffix is appended to the prefix of a store for the store of its relays. Its items belong to no other store.
const directorySuffix = "\x01relays"

const maxOutage = 12 * time.Hour

var tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)
