package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// newest is what a position in the history is not older than: a moment, and a write.
type newest struct {
	since time.Duration
	write string // its name; "" if there is none in this round
}

// forgotten is that somebody was told that history is gone.
type forgotten struct {
	by, what string
	handle   int
	from     newest
	at       time.Duration
	err      error
}

// forgotten notes that the follower was told so.
func (f *follower) forgotten(what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.round.forget(forgotten{f.name, what, f.handle, f.newest, f.run.now(), err})
}

// forgotten notes that the client was told so.
func (c *client) forgotten(what string, from newest, err error) {
	c.round.forget(forgotten{c.name, what, c.handle, from, c.round.run.now(), err})
}

func (h *history) forget(g forgotten) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = append(h.gone, g)
}

// compacts notes that history may be compacted from now on, until what it returns is called.
func (r *run) compacts() (over func()) {
	e := &episode{Compact, r.now(), forever}
	r.compactions.Lock()
	defer r.compactions.Unlock()
	r.compactions.all = append(r.compactions.all, e)
	return func() {
		r.compactions.Lock()
		defer r.compactions.Unlock()
		e.end = r.now()
	}
}

// compacted reports whether by a moment history had been compacted up to some point after another.
func (r *run) compacted(after, by time.Duration) bool {
	r.compactions.Lock()
	defer r.compactions.Unlock()
	for _, e := range r.compactions.all {
		if e.begin <= by && e.end >= after {
			return true
		}
	}
	return false
}

// relist opens a watch without a cursor, because history is gone. What its snapshot shows of each key is where the follower goes on.
func (f *follower) relist(ctx context.Context) error {
	for began := f.run.now(); ; {
		err := f.list(ctx)
		if err == nil {
			return nil
		}
		closed := errors.Is(err, storage.ErrWatchClosed) && ctx.Err() == nil // history may be compacted under the snapshot as well
		if !closed && !errors.Is(err, storage.ErrInconsistent) && !errors.Is(err, context.DeadlineExceeded) || f.run.now()-began > f.run.o.Timeout {
			return fmt.Errorf("listing again after history was compacted: %w", err)
		}
	}
}

func (f *follower) list(ctx context.Context) error {
	in, b := f.current(), f.run.handles[f.handle]
	k := &call{kind: "watch's snapshot", client: f.name, handle: f.handle, process: generation(b), strong: true, cut: f.run.h.ListIsNoSnapshot == "", fate: done}
	k.begin = f.run.now()
	w, err := b.WatchList(ctx, thing, everywhere, "")
	if err != nil {
		return err
	}
	k.end = f.run.now()
	all, err := f.snapshot(ctx, w)
	if err != nil {
		w.Close()
		return err
	}
	k.returned = f.run.now()
	if !k.cut {
		k.end = k.returned
	}
	if k.process != generation(b) {
		k.process = -1
	}
	f.watch = w
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.round == in {
		k.parts = newClient(in, f.name, f.handle).all(k.kind, all[in.namespace])
		in.enter(k)
	}
	f.broken, f.newest = true, newest{since: k.begin}
	found := map[string]event{}
	for _, res := range all[f.round.namespace] {
		ev, _ := seen(upsertOf(res), f.handle, generation(w), k.returned)
		found[ev.key] = ev
	}
	for _, key := range f.round.keys {
		ev := found[key]
		ev.key, ev.relisted, ev.more, ev.handle, ev.process, ev.at = key, true, false, f.handle, generation(w), k.returned
		f.add(ev)
	}
	return nil
}

// snapshot reads a watch's snapshot, and returns it by namespace.
func (f *follower) snapshot(ctx context.Context, w storage.Watch) (map[string][]*resourcepb.Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	all := map[string][]*resourcepb.Resource{}
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			return nil, err
		}
		if ev.GetEndOfSnapshot() != nil {
			return all, nil
		}
		res := ev.GetUpsert().GetResource()
		in := res.GetId().GetTenancy().GetNamespace()
		all[in] = append(all[in], res)
	}
}

func upsertOf(res *resourcepb.Resource) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: res}}}
}
