package streams

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// Event is one change, as the feed knows it.
type Event = driver.Event[*Position]

// Table is what the package needs of the table whose stream it reads.
type Table interface {
	// Stream returns the ARN of the table's stream.
	Stream(ctx context.Context) (string, error)
	// Event makes an event, without its position, of a record; nil for one that is no change of the store. count is the count of
	// the state that the record leaves, by which states of one key can be compared.
	Event(ctx context.Context, r *types.Record) (ev *Event, count uint64, err error)
	// WriteTick stores data in the item of a tick; it need not last longer than an hour.
	WriteTick(ctx context.Context, n uint16, data []byte) error
	// Tick undoes WriteTick; ok is false for any other record.
	Tick(r *types.Record) (n uint16, data []byte, ok bool)
}

// Config is what a Source needs.
type Config struct {
	Client *dynamodbstreams.Client
	Table  Table
	Name   string // of the table, for errors
	Clock  *request.Clock

	Timeout  time.Duration // of one call of the stream's API
	Outage   time.Duration // for which a run survives without the stream
	Poll     time.Duration // pause between two rounds while something happens
	IdlePoll time.Duration // longest pause between two rounds
}
