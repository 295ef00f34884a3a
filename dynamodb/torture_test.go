//go:build integration

package dynamodb_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/torture"
)

// TestTorture disturbs the connections to AWS's emulator, and pauses it.
func TestTorture(t *testing.T) { torture.Run(t, "dynamodb", tortureEmulator) }

func tortureEmulator(t *testing.T, o faults.Options) {
	server := env.StartDynamoDB(t)
	h := torture.Proxied(t, server.StoreURL(t, "poll=10ms", "idle-poll=200ms"), strings.TrimPrefix(server.Endpoint, "http://"),
		// Requests contain key names in encoded form, but the operation in plain text.
		"DynamoDB_20120810.TransactWriteItems", "DynamoDB_20120810.PutItem", "DynamoDB_20120810.UpdateItem", "DynamoDB_20120810.DeleteItem", "DynamoDB_20120810.GetItem")
	skew := skewed(&h)
	h.Faults = append(h.Faults, torture.Lasting(faults.Pause, 2, func() { server.Freeze(t) }, func() { server.Wake(t) }), skew)
	torture.Exempt(&h, "the emulator keeps its data in memory", faults.KillServer, faults.Restart, faults.CrashSession, faults.StallDisk, faults.FillDisk)
	torture.Exempt(&h, "the emulator is one process", faults.StandbyAway, faults.QuorumAway, faults.ChangeLeader)
	torture.Exempt(&h, "a stream is kept for a day", faults.Compact)
	h.ListIsNoSnapshot = "DynamoDB reads different partitions, and different pages, at different moments"
	h.NoOrderAcrossKeys = "each shard of a stream has an order of its own"
	h.NoHistorian = "DynamoDB has no numbers across keys, and keeps no versions"
	h.NoBookmarker = "a shard of a stream does not report its lag behind the table"
	h.NoCommitBounds = "the records of one transaction arrive through several shards"
	faults.Test(t, h, o)
}

// skewed returns a fault that sets the local clock of a handle, and adds to the harness the means to find handles.
func skewed(h *faults.Harness) faults.Fault {
	var mu sync.Mutex
	var handles []*dynamodb.Backend
	open := h.Open
	h.Open = func(ctx context.Context) (storage.Backend, error) {
		b, err := open(ctx)
		if own, ok := b.(*dynamodb.Backend); ok {
			mu.Lock()
			defer mu.Unlock()
			handles = append(handles, own)
		}
		return b, err
	}
	return faults.Fault{Kind: faults.SkewClock, Weight: 2, Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
		mu.Lock()
		b := handles[random.IntN(len(handles))]
		mu.Unlock()
		by := time.Duration(random.Int64N(int64(80*time.Minute))) - 40*time.Minute
		dynamodb.SetLocalClock(b, func() time.Time { return time.Now().Add(by) })
		return func(context.Context) error { dynamodb.SetLocalClock(b, time.Now); return nil }, nil
	}}
}
