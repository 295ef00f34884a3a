package dynamodb

import (
	"context"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// walk reads history: from a position until it has what the reader had read when the walk began. The end is known by the numbers
// of records, never by an answer without any: those come before data, too.
type walk struct {
	*reader
	pos, target *position
	filter      *key.Filter
	iterators   map[string]string
	empty       int // answers without records, one after the other
	events      []*event
	size        int // of the events, in bytes
}

// read goes on until there are limit events, or driver.PageBytes of them, or history is used up.
func (w *walk) read(ctx context.Context, limit int) (more bool, err error) {
	listed := false
	for len(w.events) < limit && w.size < driver.PageBytes {
		if shard, need := w.behind(); need {
			if err := w.step(ctx, shard); err != nil {
				return false, err
			}
			continue
		}
		if w.reached() {
			return false, nil
		}
		heirs, _, err := w.heirs(ctx, w.pos)
		if err != nil {
			return false, err
		}
		for _, heir := range heirs {
			w.pos = w.pos.with(heir.shard, heir.seq)
		}
		if len(heirs) == 0 {
			if listed {
				return false, fmt.Errorf("the shards of the stream that are listed do not lead from %v to %v", w.pos, w.target)
			}
			listed = true
			if _, err := w.describe(ctx, w.pos); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// ahead reports whether a reader at seq has read more of a shard than one at from.
func ahead(seq, from string) bool {
	return (numbered(seq) || seq == ended) && compareSeq(seq, from) > 0
}

// behind returns a shard in which the target is ahead.
func (w *walk) behind() (place, bool) {
	for _, pl := range w.pos.shards {
		if pl.seq == ended {
			continue
		}
		seq, there := w.target.get(pl.shard)
		if there && ahead(seq, pl.seq) || !there && w.lines.precedes(pl.shard, w.target) {
			return pl, true
		}
	}
	return place{}, false
}

// reached reports whether everything in the target was read. A shard of which nothing says how it is related to the target may
// have records that are part of it.
func (w *walk) reached() bool {
	for _, pl := range w.pos.shards {
		_, there := w.target.get(pl.shard)
		if !there && pl.seq != ended && !w.lines.follows(pl.shard, w.target) {
			return false
		}
	}
	for _, pl := range w.target.shards {
		seq, there := w.pos.get(pl.shard)
		if there && ahead(pl.seq, seq) || !there && ahead(pl.seq, "") && !w.lines.precedes(pl.shard, w.pos) {
			return false
		}
	}
	return true
}

// step reads a page of a shard.
func (w *walk) step(ctx context.Context, pl place) error {
	p, err := w.fetch(ctx, pl, w.iterators[pl.shard])
	if err != nil {
		return err
	}
	pos, events, err := w.take(ctx, w.pos, pl.shard, p)
	if err != nil {
		return err
	}
	w.pos = pos
	w.iterators[pl.shard] = p.next
	for _, ev := range events {
		if w.filter.Match(&ev.Key) && !pos.joined.has(ev.Key, ev.At.count) {
			w.events = append(w.events, ev)
			w.size += ev.Size
		}
	}
	if len(p.records) > 0 || p.ended {
		w.empty = 0
		return nil
	}
	w.empty++
	if !sleep(ctx, min(time.Duration(w.empty)*10*time.Millisecond, w.b.opts.Poll)) {
		return ctx.Err()
	}
	return nil
}
