package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/relays"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
)

// directorySuffix is appended to the prefix of a store for the store of its relays. Its items belong to no other store.
const directorySuffix = "\x01relays"

// startRelay starts the handle's part in the relays of the store.
func (t *table) startRelay(config streams.Config, open func(context.Context, *dynamodb.Client, *dynamodbstreams.Client, *Options) (*Backend, error)) (relays.Node, error) {
	return relays.Start(relays.Host{
		Config: config, Options: relays.Options(*t.opts.Relay), Logger: t.Logger(),
		OpenDirectory: func(ctx context.Context) (storage.Backend, error) {
			b, err := open(ctx, t.db, config.Client, &Options{
				Table: t.name, Prefix: t.opts.Prefix + directorySuffix, Buckets: 1, Timeout: t.opts.Timeout, FenceWait: t.opts.FenceWait,
			})
			if err != nil {
				return nil, err
			}
			return b, nil
		},
	})
}
