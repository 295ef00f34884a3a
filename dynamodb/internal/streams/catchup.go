package streams

import (
	"context"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// backlogReader reads history from a position up to the position that the reader had at the start. It recognises the end by the
// numbers of records, never by an empty answer, because empty answers also precede records.
type backlogReader struct {
	*shards
	at, target *Position
	filter     *key.Filter
	iterators  map[string]string
	empty      int // consecutive answers without records
	events     []*Event
	size       int // of the events, in bytes
}

// read continues until it has limit events, or driver.PageBytes of them, or has reached its end.
func (c *backlogReader) read(ctx context.Context, limit int) (more bool, err error) {
	listed := false
	for len(c.events) < limit && c.size < driver.PageBytes {
		if shard, need := c.nextShard(); need {
			if err := c.step(ctx, shard); err != nil {
				return false, err
			}
			continue
		}
		if c.isComplete() {
			return false, nil
		}
		next, _, err := c.next(ctx, c.at)
		if err != nil {
			return false, err
		}
		for _, pl := range next {
			c.at = c.at.with(pl.shard, pl.seq)
		}
		if len(next) == 0 {
			if listed {
				return false, fmt.Errorf("the listed shards of the stream do not lead from %v to %v", c.at, c.target)
			}
			listed = true
			if _, err := c.list(ctx, c.at); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// nextShard returns a shard whose position in the target is ahead.
func (c *backlogReader) nextShard() (shardPosition, bool) {
	for _, pl := range c.at.shards {
		if pl.seq == shardEnd {
			continue
		}
		seq, there := c.target.get(pl.shard)
		if there && isFurther(seq, pl.seq) || !there && c.tree.precedes(pl.shard, c.target) {
			return pl, true
		}
	}
	return shardPosition{}, false
}

// isComplete reports whether everything in the target was read. A shard whose relation to the target is unknown may contain records
// of the target, and so may the shards between an ancestor and a shard of the target that is at its beginning.
func (c *backlogReader) isComplete() bool {
	for _, pl := range c.at.shards {
		_, there := c.target.get(pl.shard)
		if !there && pl.seq != shardEnd && !c.tree.follows(pl.shard, c.target) {
			return false
		}
	}
	for _, pl := range c.target.shards {
		seq, there := c.at.get(pl.shard)
		if there && isFurther(pl.seq, seq) || !there && !c.tree.precedes(pl.shard, c.at) {
			return false
		}
	}
	return true
}

// step reads a page of a shard.
func (c *backlogReader) step(ctx context.Context, pl shardPosition) error {
	p, err := c.fetch(ctx, pl, c.iterators[pl.shard])
	if err != nil {
		return err
	}
	at, events, err := c.shards.events(ctx, c.at, pl.shard, p, time.Time{})
	if err != nil {
		return err
	}
	c.at = at
	c.iterators[pl.shard] = p.next
	for _, ev := range events {
		if c.filter.Match(&ev.Key) && !at.baseline.has(ev.Key, ev.At.count) {
			c.events = append(c.events, ev)
			c.size += ev.Size
		}
	}
	if len(p.records) > 0 || p.full || p.shardEnded {
		c.empty = 0
		return nil
	}
	c.empty++
	if !request.Sleep(ctx, min(time.Duration(c.empty)*10*time.Millisecond, c.Poll)) {
		return ctx.Err()
	}
	return nil
}
