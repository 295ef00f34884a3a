package dynamodb

import (
	"context"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/key"
)

// walk reads history: from a position until it has what the reader had read when the walk began.
type walk struct {
	*reader
	pos, target *position
	filter      *key.Filter
	iterators   map[string]string
	empty       map[string]int // answers without records, one after the other
	events      []*event
}

// read goes on until there are limit events or history is used up.
func (w *walk) read(ctx context.Context, limit int) (more bool, err error) {
	if err := w.know(ctx); err != nil {
		return false, err
	}
	listed := false
	for len(w.events) < limit {
		shard, need := w.behind()
		if need {
			if err := w.step(ctx, shard); err != nil {
				return false, err
			}
			continue
		}
		if w.reached() {
			return false, nil
		}
		heirs := w.lines.heirs(w.pos)
		for _, heir := range heirs {
			w.pos = w.pos.with(heir, "")
		}
		if len(heirs) == 0 {
			if listed {
				return false, fmt.Errorf("the shards of the stream do not lead from %v to %v", w.pos, w.target)
			}
			listed = true
			if _, err := w.describe(ctx, w.pos); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// know makes sure that every shard that is still to be read exists.
func (w *walk) know(ctx context.Context) error {
	var listing *listing
	for _, pl := range w.pos.shards {
		if pl.seq == ended || w.lines.knows(pl.shard) {
			continue
		}
		if listing == nil {
			var err error
			if listing, err = w.describe(ctx, w.target); err != nil {
				return err
			}
		}
		if !w.lines.knows(pl.shard) {
			return fmt.Errorf("%w: the stream has forgotten shard %s", storage.ErrCompacted, pl.shard)
		}
	}
	return nil
}

// behind returns a shard in which the target is ahead.
func (w *walk) behind() (place, bool) {
	for _, pl := range w.pos.shards {
		if pl.seq == ended {
			continue
		}
		seq, there := w.target.get(pl.shard)
		if there && !w.has(pl, seq) || !there && w.lines.precedes(pl.shard, w.target) {
			return pl, true
		}
	}
	return place{}, false
}

// has tells whether a place is at or behind what the target has read of the same shard.
func (w *walk) has(pl place, target string) bool {
	if rank(target) == 1 && rank(pl.seq) != 1 {
		// The reader started at the shard's end, has read nothing since, and does not know the end's number.
		return w.empty[pl.shard] >= 2
	}
	return compareSeq(pl.seq, target) >= 0
}

// reached tells whether everything in the target was read.
func (w *walk) reached() bool {
	for _, pl := range w.target.shards {
		seq, there := w.pos.get(pl.shard)
		if there && !w.has(place{pl.shard, seq}, pl.seq) || !there && !w.lines.precedes(pl.shard, w.pos) {
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
		}
	}
	if len(p.records) > 0 || p.ended {
		w.empty[pl.shard] = 0
		return nil
	}
	w.empty[pl.shard]++
	if !sleep(ctx, min(time.Duration(w.empty[pl.shard])*10*time.Millisecond, w.b.opts.Poll)) {
		return ctx.Err()
	}
	return nil
}
