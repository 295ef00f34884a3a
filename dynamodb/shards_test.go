package dynamodb_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// The first watch of a stream with many shards opens them, reads them and writes its ticks concurrently: requests of each kind are
// answered only when several of them have arrived.
func TestManyShardsOpenConcurrently(t *testing.T) {
	t.Parallel()
	const together = 32
	for _, op := range []string{"GetShardIterator", "PutItem"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			s.SetShards(together)
			b := handle(t, s)
			var mu sync.Mutex
			arrived, enough := 0, make(chan struct{})
			s.SetGate(func(got string) {
				if got != op {
					return
				}
				mu.Lock()
				if arrived++; arrived == together {
					close(enough)
				}
				mu.Unlock()
				select {
				case <-enough:
				case <-t.Context().Done():
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), fixture.Timeout)
			defer cancel()
			w, err := b.WatchList(ctx, boxType, tenancy, "")
			if err != nil {
				t.Fatalf("with %d of %d requests: %v", arrived, together, err)
			}
			w.Close()
		})
	}
}

// The first watch of a stream with 1,000 shards lists them once, opens each once, and reads each once or twice. It depends on no tick, and
// the number of ticks is bounded.
func TestThousandShards(t *testing.T) {
	t.Parallel()
	const shards = 1000
	s := dynamofake.New(t)
	s.SetShards(shards)
	s.SetListedShards(100)
	b := handle(t, s, func(o *dynamodb.Options) { o.Poll, o.IdlePoll = time.Minute, time.Minute })
	writes := s.Calls("PutItem")
	afterSnapshot(t, opened(t, b))
	for op, most := range map[string]int{"DescribeStream": shards / 100, "GetShardIterator": shards, "GetRecords": 2 * shards, "PutItem": writes + 2*shards} {
		if n := s.Calls(op); n > most {
			t.Errorf("%d calls of %s, expected at most %d", n, op, most)
		}
	}
}

// A reader that is throttled pauses longer after each round, also while a proof is pending.
func TestThrottledReaderBacksOff(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	w := opened(t, b)
	afterSnapshot(t, w)
	var longest time.Duration
	var last time.Time
	calls, enough := 0, make(chan struct{})
	s.SetFaults(func(op string) dynamofake.Fault {
		if op != "GetRecords" || calls > 30 {
			return dynamofake.Fault{}
		}
		if calls++; calls > 1 {
			longest = max(longest, time.Since(last))
		}
		last = time.Now()
		if calls == 30 { // the client makes three attempts a round
			close(enough)
		}
		return dynamofake.Fault{Code: "LimitExceededException"}
	})
	stored := fixture.Write(t, b, box("a", nil))
	<-enough
	if longest < 100*time.Millisecond {
		t.Errorf("the longest pause in ten throttled rounds is %v", longest)
	}
	if _, version, _ := seen(fixture.Next(t, w)); version != stored.GetVersion() {
		t.Error("another event than the write's")
	}
}
