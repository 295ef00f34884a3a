package dynamodb

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// Options say which store a backend opens, and how. Zero values are sensible, but for Table.
type Options struct {
	// Table is the table's name.
	Table string
	// Prefix tells the stores in one table apart. "" is a store, too.
	Prefix string
	// NoCreate refuses a table, or a store in it, that is not there.
	NoCreate bool
	// PointInTimeRecovery is switched on for a table that is created.
	PointInTimeRecovery bool
	// Tags of a table that is created.
	Tags map[string]string

	// Timeout bounds calls whose context has no deadline: 30 seconds.
	Timeout time.Duration
	// MaxSize is the largest resource, in bytes: 1 MiB, which is also the most.
	MaxSize int
	// Outage is how long watches survive without the stream: 5 minutes. At most 12 hours, half of what a stream remembers.
	Outage time.Duration
	// Poll is the pause between two looks at the stream while something happens: 200 milliseconds.
	Poll time.Duration
	// IdlePoll is the longest pause between two looks at the stream in quiet times: 2 seconds.
	IdlePoll time.Duration

	// FenceWait is how long closing the store for writing takes, during which it stays open: 16 minutes. AWS accepts a
	// request for 15 minutes after it was signed, and only when that is over are all requests on their way known to be
	// refused by the fence. Shorter is for emulators, and must be the same for all handles of a store.
	FenceWait time.Duration

	// Spent, if set, is told the capacity units that each request consumed. It is called from many goroutines.
	Spent func(units float64)
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case !tableName.MatchString(o.Table):
		return o, fmt.Errorf("%w: table name %q: expected 3 to 255 letters, digits, underscores, hyphens and dots", storage.ErrInvalid, o.Table)
	case len(o.Prefix) > 255 || !utf8.ValidString(o.Prefix) || strings.Contains(o.Prefix, "\x00"):
		return o, fmt.Errorf("%w: prefix: expected at most 255 bytes of UTF-8 without NUL", storage.ErrInvalid)
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
	return o, nil
}

const maxOutage = 12 * time.Hour

var tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)
