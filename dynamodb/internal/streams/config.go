package streams

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/telemetry"
)

// Event is a change in the form of the feed.
type Event = driver.Event[*Position]

// Table is the table whose stream the package reads.
type Table interface {
	// Stream returns the ARN of the table's stream.
	Stream(ctx context.Context) (string, error)
	// Event converts a record into an event without its position, or nil if the record is no change of the store. count is the
	// count of the resulting state, which orders the states of a key.
	Event(ctx context.Context, r *types.Record) (ev *Event, count uint64, err error)
	// WriteTick stores data in the item of a tick. An hour of retention is sufficient.
	WriteTick(ctx context.Context, n uint16, data []byte) error
	// Tick is the inverse of WriteTick; ok is false for any other record.
	Tick(r *types.Record) (n uint16, data []byte, ok bool)
}

// Config is the configuration of a Source.
type Config struct {
	Client *dynamodbstreams.Client
	Table  Table
	Name   string // of the table, for errors
	Clock  *request.Clock

	Timeout  time.Duration // of one call of the stream's API
	Outage   time.Duration // how long a run survives without the stream
	Poll     time.Duration // pause between two rounds during activity
	IdlePoll time.Duration // longest pause between two rounds

	// StoreID and Silence are for relays and subscribers. Silence is how long a subscriber waits for a message before it tries another
	// relay. A relay sends five messages in that time.
	StoreID driver.StoreID
	Silence time.Duration

	Lag *telemetry.Lag // may be nil
}
