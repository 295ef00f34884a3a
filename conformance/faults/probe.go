package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// watchBriefly opens a watch, reads its snapshot, and reads some events after it.
func watchBriefly(c *client, timeout time.Duration) {
	ctx, cancel := c.callContext(timeout)
	defer cancel()
	k := c.begin("watch's snapshot", timeout)
	k.strong, k.isSnapshot = true, c.round.run.h.ListIsNoSnapshot == ""
	w, err := c.b.WatchList(ctx, thing, roundTenancy(c.round.namespace), "")
	if err != nil {
		c.finishCall(k, err)
		return
	}
	defer w.Close()
	opened := c.round.run.now()
	k.timeout = 0 // reading the snapshot takes as long as it takes
	reading, stop := context.WithTimeout(context.Background(), timeout)
	defer stop()
	var all []*resourcepb.Resource
	for {
		ev, err := w.Next(reading)
		if err != nil {
			if errors.Is(err, storage.ErrWatchClosed) && c.round.run.h.offers(Compact) {
				c.reportCompaction("Next in a snapshot", lowerBound{since: k.begin}, err)
				err = fmt.Errorf("reading the snapshot: %w: %w", storage.ErrInconsistent, err)
			}
			if errors.Is(err, reading.Err()) && reading.Err() != nil {
				err = fmt.Errorf("reading the snapshot: %w: %w", storage.ErrInconsistent, err)
			}
			c.finishCall(k, err)
			return
		}
		if ev.GetEndOfSnapshot() != nil {
			break
		}
		all = append(all, ev.GetUpsert().GetResource())
	}
	k.parts = c.listParts(k.kind, all)
	c.finishCall(k, nil)
	if k.isSnapshot {
		k.end = opened // it was taken before WatchList returned
	}
	probeWatch(c, w, &probe{from: origin{list: k, newest: lowerBound{since: k.begin}}})
}

// resumeFromOrigin opens a watch from a shared cursor.
func resumeFromOrigin(c *client, timeout time.Duration) {
	c.round.mu.Lock()
	if len(c.round.origins) == 0 {
		c.round.mu.Unlock()
		return
	}
	o := c.round.origins[c.random.IntN(len(c.round.origins))]
	c.round.mu.Unlock()
	resumer, ok := storage.As[storage.Resumer](c.b)
	if !ok {
		return
	}
	ctx, cancel := c.callContext(timeout)
	defer cancel()
	k := c.begin("resumed watch", timeout)
	w, err := resumer.WatchFrom(ctx, thing, roundTenancy(c.round.namespace), "", o.cursor)
	if err != nil && errors.Is(err, storage.ErrCompacted) && c.round.run.h.offers(Compact) {
		c.reportCompaction("WatchFrom", o.newest, err)
		err, k.timeout = context.Canceled, 0 // as if the call had not been made
	}
	c.finishCall(k, err)
	if err != nil {
		return
	}
	defer w.Close()
	probeWatch(c, w, &probe{from: o})
}

// probeWatch reads the next few events.
func probeWatch(c *client, w storage.Watch, p *probe) {
	p.client, p.handle, p.process = c.name, c.handle, generation(w)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.random.Int64N(int64(time.Second))))
	defer cancel()
	for len(p.events) < maxProbeEvents {
		ev, err := w.Next(ctx)
		if err != nil {
			if ctx.Err() == nil && errors.Is(err, storage.ErrWatchClosed) && c.round.run.h.offers(Compact) {
				c.reportCompaction("Next", p.from.newest, err)
			} else if ctx.Err() == nil {
				c.round.report(Violation{"watches go on", fmt.Sprintf("%s on handle %d, from %v: Next: %v", c.name, c.handle, p.from, err)})
			}
			break
		}
		e, res := newEvent(ev, c.handle, generation(w), c.round.run.now())
		c.checkContent(res)
		p.events = append(p.events, e)
	}
	c.round.mu.Lock()
	defer c.round.mu.Unlock()
	c.round.probes = append(c.round.probes, p)
}
