package dynamodb

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/relays"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
)

// startRelay starts the handle's part in the relays of the store. open opens another store of the table.
func (t *table) startRelay(config streams.Config, open func(context.Context, *Options) (storage.Backend, error)) (relays.Node, error) {
	return relays.Start(relays.Host{
		Config: config, Options: relays.Options(*t.opts.Relay), Recorder: t.Recorder,
		OpenDirectory: func(ctx context.Context) (storage.Backend, error) {
			return open(ctx, &Options{
				Table: t.name, Prefix: t.opts.Prefix + directorySuffix, Buckets: 1, Timeout: t.opts.Timeout, FenceWait: t.opts.FenceWait,
				Spent: t.count, keepTable: true,
			})
		},
	})
}
