package streams

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// countedTicks is a table whose ticks are counted. Their records have the data as sequence numbers.
type countedTicks struct {
	largeEvents
	ticks *atomic.Int64
	data  chan []byte
}

func (c countedTicks) WriteTick(_ context.Context, _ uint16, data []byte) error {
	c.ticks.Add(1)
	c.data <- data
	return nil
}

func (countedTicks) Tick(r *types.Record) (uint16, []byte, bool) {
	data := []byte(aws.ToString(r.Dynamodb.SequenceNumber))
	return binary.BigEndian.Uint16(data), data, true
}

// No tick reaches one of two shards. The prover writes few ticks, and waits longer and longer. Callers do not wait for such a proof. When
// the shard ends and its child is begun, the position becomes as recent as the shard's last answer.
func TestUnreachableShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := countedTicks{ticks: new(atomic.Int64), data: make(chan []byte, 1000)}
		r := newReader(&Config{Table: table, Clock: request.NewClock()})
		defer r.prover.writers.Wait()
		began := r.Clock.Now()
		r.tree.update(map[string]string{"warm": "", "cold": ""}, &Position{})
		pos := &Position{shards: []shardPosition{{"cold", since(began)}, {"warm", since(began)}}, asOf: began}
		r.prover.recordStart(pos.shards, began)
		r.setPosition(pos)
		round := func() {
			r.prover.advance(t.Context(), r.position(), r.tree, r.setPosition)
			synctest.Wait()
			for len(table.data) > 0 {
				r.prover.findTicks("warm", []types.Record{{Dynamodb: &types.StreamRecord{SequenceNumber: aws.String(string(<-table.data))}}})
			}
			r.prover.endRound()
		}
		r.prover.requestProof()
		for range 3600 {
			round()
			time.Sleep(time.Second)
		}
		if n := table.ticks.Load(); n < 10 || n > 300 {
			t.Errorf("%d ticks in an hour", n)
		}
		waited := time.Now()
		if err := r.prover.wait(t.Context(), time.Now(), time.Now().Add(time.Hour), nil); err != nil || time.Since(waited) > 0 {
			t.Errorf("waited %v for a proof that had given up: %v", time.Since(waited), err)
		}
		if at := r.position(); at.asOf != began || at.proofNumber > 0 {
			t.Errorf("the position is as of %v, with nothing known of a shard since %v", at.asOf, began)
		}
		r.prover.recordEnd("cold", r.Clock.Now())
		r.tree.update(map[string]string{"child": "cold"}, &Position{})
		r.prover.inherit("child", "cold")
		r.setPosition(r.position().with("cold", shardEnd).with("child", ""))
		round()
		if age := r.Clock.Now().Sub(r.position().asOf); age > latest {
			t.Errorf("the position is %v old after the end of the shard", age)
		}
	})
}
