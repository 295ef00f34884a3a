package streams

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// largeEvents is a table whose records each have a resource of that many bytes. Ticks cannot be written.
type largeEvents int

func (largeEvents) Stream(context.Context) (string, error) { return "arn:x", nil }

func (n largeEvents) Event(_ context.Context, r *types.Record) (*Event, uint64, error) {
	return &Event{Key: driver.Key{Name: *r.Dynamodb.SequenceNumber}, Size: int(n)}, 1, nil
}

func (largeEvents) WriteTick(ctx context.Context, _ uint16, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

func (largeEvents) Tick(*types.Record) (uint16, []byte, bool) { return 0, nil, false }

// An answer of the stream may contain a thousand resources of 1 MiB, highly compressed. The reader takes it in pieces that are
// limited by their size in memory, and omits nothing.
func TestEventsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	const records, size = 20, 1000 << 10
	s := &shards{Config: &Config{Table: largeEvents(size), Timeout: time.Minute, Clock: request.NewClock()}}
	var left []types.Record
	for i := range records {
		left = append(left, types.Record{Dynamodb: &types.StreamRecord{SequenceNumber: aws.String(fmt.Sprint(100 + i))}})
	}
	pos, taken := &Position{shards: []shardPosition{{"s", ""}}, asOf: s.Clock.Now()}, 0
	for len(left) > 0 {
		p := &page{records: left, shardEnded: true}
		next, events, err := s.events(t.Context(), pos, "s", p, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if len(events)*size > driver.PageBytes+1<<20 {
			t.Fatalf("%d events of %d bytes each were returned at once", len(events), size)
		}
		for i, ev := range events {
			if want := fmt.Sprint(100 + taken + i); ev.At.shard != "s" || ev.At.seq != want {
				t.Fatalf("an event is at %q in %q, expected %s in s", ev.At.seq, ev.At.shard, want)
			}
		}
		left, taken = left[len(p.records):], taken+len(events)
		if seq, _ := next.get("s"); p.shardEnded != (len(left) == 0) || (seq == shardEnd) != p.shardEnded || len(p.records) == 0 {
			t.Fatalf("%d records remain, page ended: %v, progress %q", len(left), p.shardEnded, seq)
		}
		pos = next
	}
	if taken != records {
		t.Errorf("%d events of %d records", taken, records)
	}
}

// A process that was suspended for a day starts a shard from its beginning. The beginning of the shard may have been trimmed. If
// the process had read a part of the shard, DynamoDB itself would report the trim.
func TestShardBegunTooLate(t *testing.T) {
	t.Parallel()
	s := &shards{Config: &Config{Table: largeEvents(1), Timeout: time.Minute, Clock: request.NewClock()}}
	page := func() *page {
		return &page{records: []types.Record{{Dynamodb: &types.StreamRecord{SequenceNumber: aws.String("100")}}}}
	}
	for _, c := range []struct {
		seq  string
		age  time.Duration
		lost bool
	}{
		{"", shardMemory - time.Minute, false},
		{"", shardMemory + time.Minute, true},
		{since(time.Now()), shardMemory + time.Minute, true},
		{"99", shardMemory + time.Minute, false},
	} {
		pos := &Position{shards: []shardPosition{{"s", c.seq}}, asOf: s.Clock.Now().Add(-c.age)}
		_, _, err := s.events(t.Context(), pos, "s", page(), time.Time{})
		if c.lost != errors.Is(err, storage.ErrCompacted) || !c.lost && err != nil {
			t.Errorf("a shard at %q, %v later: %v", c.seq, c.age, err)
		}
	}
}

// A shard is read to its end, and its child is listed but not being read yet. Recent writes are in the child. A proof that requires
// no shard would wrongly be complete.
func TestNoProofBetweenShards(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // prevents ticks
	r := newReader(&Config{Table: largeEvents(0), Clock: request.NewClock()})
	r.tree.update(map[string]string{"parent": "", "child": "parent"}, &Position{})
	r.setPosition(&Position{shards: []shardPosition{{"parent", shardEnd}}})
	r.prover.requestProof()
	r.prover.advance(ctx, r.position(), r.tree, r.setPosition)
	r.prover.writers.Wait()
	if r.prover.completedProof > 0 || r.position().proofNumber > 0 {
		t.Errorf("the proof is complete, with nothing read of %v's child", r.position())
	}
}

// An attempt to open the stream fails half way, and the table is created again before the next attempt. Nothing of its old stream
// must remain.
func TestOpenForgetsAnAttempt(t *testing.T) {
	t.Parallel()
	r := newReader(&Config{Table: noStream{}, Clock: request.NewClock(), Timeout: time.Minute})
	r.tree.update(map[string]string{"old": ""}, &Position{})
	r.iterators["old"] = "iterator"
	if err := r.tryOpen(t.Context()); !errors.Is(err, errNoStream) {
		t.Fatal(err)
	}
	if r.tree.knows("old") || len(r.iterators) > 0 {
		t.Error("the reader has a shard of the previous attempt")
	}
}

var errNoStream = errors.New("no stream")

// noStream is a table without a stream.
type noStream struct{ largeEvents }

func (noStream) Stream(context.Context) (string, error) { return "", errNoStream }
