package dynamodb_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/torture"
)

// TestTortureSplits splits partitions and closes shards under load, as AWS does and the emulator does not.
func TestTortureSplits(t *testing.T) {
	torture.Run(t, "dynamodb with splits", tortureSplits)
}

func tortureSplits(t *testing.T, o faults.Options) {
	s := dynamofake.New(t)
	s.SetListedShards(100)
	s.SetQueryPage(100)
	h := faults.Harness{
		Open: func(context.Context) (storage.Backend, error) { return newHandle(t, s) },
		// Clients keep their connections for later handles.
		IgnoreGoroutines: []string{"net/http.(*persistConn).readLoop", "net/http.(*persistConn).writeLoop", "net/http.(*conn).serve"},
	}
	h.Faults = []faults.Fault{
		{Kind: "split", Weight: 6, Touches: "shards", Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
			if s.OpenShards() >= 12 {
				s.RollOldest()
				return nil, nil
			}
			s.Split(random.IntN(3) == 0)
			return func(context.Context) error { s.Show(); return nil }, nil
		}},
		torture.Once("iterators expire", 1, s.ExpireIterators),
		torture.Lasting("eventual reads lag", 1, func() { s.SetLag(3) }, func() { s.SetLag(0) }),
		refusals(s, faults.LoseAnswer, dynamofake.Fault{DropAnswer: true}, 8),
		refusals(s, faults.Cut, dynamofake.Fault{Cut: true}, 8),
		refusals(s, faults.Throttle, dynamofake.Fault{Code: "ProvisionedThroughputExceededException"}, 3),
		refusals(s, "internal error", dynamofake.Fault{InternalError: true}, 8),
		pause(s),
		skewed(&h),
	}
	torture.Exempt(&h, "the server is part of this process", faults.KillServer, faults.Restart, faults.CrashSession, faults.StallDisk, faults.FillDisk,
		faults.KillClient, faults.FreezeClient)
	torture.Exempt(&h, "TestTorture does it", faults.Delay)
	torture.Exempt(&h, "it is one process", faults.StandbyAway, faults.QuorumAway, faults.ChangeLeader)
	torture.Exempt(&h, "a stream is kept for a day", faults.Compact)
	exemptDynamoDB(&h)
	faults.Test(t, h, o)
}

// refusals returns a fault that treats one of n requests in a special way.
func refusals(s *dynamofake.Server, kind faults.Kind, treatment dynamofake.Fault, n int) faults.Fault {
	return faults.Fault{Kind: kind, Weight: 2, Touches: "requests", Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
		s.SetFaults(func(string) dynamofake.Fault {
			if random.IntN(n) == 0 {
				return treatment
			}
			return dynamofake.Fault{}
		})
		return func(context.Context) error { s.SetFaults(nil); return nil }, nil
	}}
}

// pause returns a fault that holds all requests until it is healed.
func pause(s *dynamofake.Server) faults.Fault {
	return faults.Fault{Kind: faults.Pause, Weight: 1, Inject: func(context.Context, *rand.Rand) (func(context.Context) error, error) {
		healed := make(chan struct{})
		s.SetGate(func(string) { <-healed })
		return func(context.Context) error { s.SetGate(nil); close(healed); return nil }, nil
	}}
}

// exemptDynamoDB exempts a harness from the guarantees that DynamoDB does not give.
func exemptDynamoDB(h *faults.Harness) {
	h.ListIsNoSnapshot = "DynamoDB reads different partitions, and different pages, at different moments"
	h.NoOrderAcrossKeys = "each shard of a stream has an order of its own"
	h.NoHistorian = "DynamoDB has no numbers across keys, and keeps no versions"
	h.NoBookmarker = "a shard of a stream does not report its lag behind the table"
	h.NoCommitBounds = "the records of one transaction arrive through several shards"
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
