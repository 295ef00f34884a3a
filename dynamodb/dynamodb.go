package dynamodb

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
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
	set(&o.FenceWait, request.SignatureLife+time.Minute)
	return o, nil
}

const maxOutage = 12 * time.Hour

var tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)

// linger is how long the stream is read on after the last watch was closed.
const linger = 30 * time.Second

// Backend is a store in a DynamoDB table. It implements [storage.Backend], [storage.Pager], [storage.Resumer] and
// [storage.Transactor].
type Backend struct {
	*backend.Backend[*streams.Position]
	handle *handle
}

var (
	_ storage.Backend    = (*Backend)(nil)
	_ storage.Pager      = (*Backend)(nil)
	_ storage.Resumer    = (*Backend)(nil)
	_ storage.Transactor = (*Backend)(nil)
)

// handle is an opened store as a driver: parts that each have a job of their own.
type handle struct {
	*reader // Get, Children
	*lister // Scan, List, Page, Snapshot
	*writer // Apply
	*closer // Fence, SetFence
	*notes  // ReadNote, WriteNote, DeleteNote

	table   *table
	id      driver.StoreID
	source  *streams.Source
	stop    context.CancelFunc // ends what runs for the handle
	release func()             // frees the clients, where they are the backend's own
}

var (
	_ driver.Driver[*streams.Position]      = (*handle)(nil)
	_ driver.Lister                         = (*handle)(nil)
	_ driver.Pager[*streams.Position]       = (*handle)(nil)
	_ driver.Snapshotter[*streams.Position] = (*handle)(nil)
	_ driver.Mover                          = (*handle)(nil)
)

// New opens a store with clients that stay the caller's. The context bounds the opening only.
func New(ctx context.Context, db *dynamodb.Client, streamsClient *dynamodbstreams.Client, opts *Options) (*Backend, error) {
	if opts == nil {
		opts = &Options{}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	t := &table{layout: layout{o.Prefix}, db: db, name: o.Table, clock: request.NewClock(), opts: &o}
	id, err := setup{t}.open(ctx)
	if err != nil {
		return nil, err
	}
	h := newHandle(t, id, streamsClient)
	return &Backend{
		Backend: backend.New(h, backend.Options[*streams.Position]{
			MaxSize: o.MaxSize, MaxOps: maxOps, Timeout: o.Timeout, Outage: o.Outage, Linger: linger,
			UnboundedFence: true,
			OnDelivered:    func(ev *streams.Event) { h.marks.noteState(ev.Key, ev.At.Count(), !ev.Delete) },
		}),
		handle: h,
	}, nil
}

// newHandle wires the parts together.
func newHandle(t *table, id driver.StoreID, client *dynamodbstreams.Client) *handle {
	life, stop := context.WithCancel(context.Background())
	r := newReader(t)
	registry, permit := &registry{table: t}, newPermit(life, t)
	source := streams.NewSource(streams.Config{
		Client: client, Table: records{r}, Name: t.name, Clock: t.clock,
		Timeout: t.opts.Timeout, Outage: t.opts.Outage, Poll: t.opts.Poll, IdlePoll: t.opts.IdlePoll,
	})
	return &handle{
		reader: r,
		lister: &lister{reader: r, registry: registry, source: source, pageItems: defaultPageItems},
		writer: &writer{table: t, reader: r, registry: registry, permit: permit, changed: source.Wake},
		closer: &closer{table: t, permit: permit},
		notes:  &notes{t},
		table:  t, id: id, source: source, stop: stop, release: func() {},
	}
}

// StoreID implements driver.Driver.
func (h *handle) StoreID() driver.StoreID { return h.id }

// Source implements driver.Driver.
func (h *handle) Source() driver.Source[*streams.Position] { return h.source }

// Close implements driver.Driver.
func (h *handle) Close() error {
	h.stop()
	h.reader.close()
	h.release()
	return nil
}
