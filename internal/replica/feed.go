package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// prime fills the trees with the snapshot of the first watch, row by row.
func (r *Replica[V]) prime(ctx context.Context, w storage.Watch) error {
	for {
		ev, err := w.Next(ctx)
		switch {
		case err != nil:
			return err
		case ev.GetEndOfSnapshot() != nil:
			r.cursor = w.Cursor()
			return nil
		case r.has(ev.GetUpsert().GetResource()):
			row := r.row(ev.GetUpsert().GetResource())
			r.set(row.Key, row)
		}
	}
}

// feed applies what the watch returns, and opens another one when it has ended.
func (r *Replica[V]) feed(ctx context.Context, w storage.Watch) {
	defer close(r.feedEndCh)
	var pause time.Duration
	for {
		some, err := r.applyWatch(ctx, w)
		w.Close()
		if pause = nextPause(pause); some {
			pause = 0 // watches that bring nothing at all must not have the store listed all the time
		}
		if w = r.reopen(ctx, err, pause); w == nil {
			return
		}
	}
}

// The pauses between two tries to list everything anew.
const (
	minPause = 20 * time.Millisecond
	maxPause = time.Second
)

// nextPause returns the pause after another one.
func nextPause(pause time.Duration) time.Duration { return min(max(2*pause, minPause), maxPause) }

// reopen lists everything anew, after a pause; nil if the replica was closed, or its backend.
func (r *Replica[V]) reopen(ctx context.Context, err error, pause time.Duration) storage.Watch {
	for ; ; pause = nextPause(pause) {
		if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
			r.end(fmt.Errorf("the copy: %w", storage.ErrClosed))
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		r.mu.Lock()
		r.barriers.requestCount++ // what is acknowledged from now on is perhaps not in the list
		began := r.barriers.requestCount
		r.mu.Unlock()
		var w storage.Watch
		if w, err = r.open(ctx); err == nil {
			if err = r.relist(ctx, w, began); err == nil {
				return w
			}
			w.Close()
		}
	}
}

// end tells all who wait that nothing comes any more.
func (r *Replica[V]) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endErr = err
	r.hasEnded.Store(true)
	r.barriers.end(err)
	r.release()
}

// applyWatch applies the changes of a watch until it ends, and reports whether it brought anything.
func (r *Replica[V]) applyWatch(ctx context.Context, w storage.Watch) (some bool, err error) {
	r.mu.Lock()
	r.live = true
	r.barriers.setWatch(w)
	r.mu.Unlock()
	var commit []watchChange[V]
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			r.mu.Lock()
			r.live = false
			r.barriers.setWatch(nil)
			r.mu.Unlock()
			return some, err
		}
		some = true
		if ev.GetBookmark() != nil {
			r.mu.Lock()
			r.confirmUpTo(r.barriers.finishRequest())
			r.mu.Unlock()
			continue
		}
		if a, ok := r.watchChange(ev); ok {
			a.cursor = w.Cursor()
			commit = append(commit, a)
		}
		if !ev.GetMore() && len(commit) > 0 {
			r.apply(commit)
			clear(commit)
			commit = commit[:0]
		}
	}
}

// watchChange is a change that the watch has brought.
type watchChange[V any] struct {
	key     key.Key
	version string  // of the row, or of what was deleted
	row     *Row[V] // nil for a deletion
	cursor  string
}

func (r *Replica[V]) watchChange(ev *resourcepb.WatchEvent) (a watchChange[V], ok bool) {
	if res := ev.GetDelete().GetResource(); res != nil && r.has(res) {
		return watchChange[V]{key: key.Of(res.GetId()), version: res.GetVersion()}, true
	}
	res := ev.GetUpsert().GetResource()
	if res == nil || !r.has(res) {
		return a, false
	}
	row := r.rowOf(res)
	if row == nil {
		row = r.row(res)
	}
	return watchChange[V]{key: row.Key, version: row.Version, row: row}, true
}

// rowOf returns the row of a resource that this program has written, nil if it has not.
func (r *Replica[V]) rowOf(res *resourcepb.Resource) *Row[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.localWrites) == 0 {
		return nil
	}
	if o := r.localWrites[key.Of(res.GetId())]; o != nil && o.row != nil && o.version == res.GetVersion() {
		return o.row
	}
	return nil
}

// apply makes a commit visible.
func (r *Replica[V]) apply(commit []watchChange[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes := make([]change[V], 0, len(commit))
	for _, a := range commit {
		r.cursor = a.cursor
		r.noteArrival(a.key, a.version, a.row == nil)
		if a.row != nil {
			r.applyDeletion(a.key, a.version)
		}
		o := r.localWrites[a.key]
		var base *Row[V]
		if o != nil {
			base = o.base
		} else {
			base = r.at(a.key)
		}
		overtaken := o != nil && o.overtakenBy(a.version, a.row == nil)
		if !same(base, a.row) { // it is not the same again, as after a list that was no snapshot
			changes = append(changes, change[V]{key: a.key, before: base, after: a.row, version: a.version, cursor: a.cursor, settles: overtaken})
		}
		switch {
		case o == nil && !same(base, a.row):
			r.set(a.key, a.row)
		case o == nil:
		case overtaken || o.endsAt(a.version, a.row == nil):
			delete(r.localWrites, a.key)
			if overtaken && a.row == nil { // perhaps by the end of a life before the write
				r.rememberDeletion(a.key, o)
			}
			if !same(o.row, a.row) {
				r.set(a.key, a.row)
			}
		default:
			o.base = a.row
			o.arrivalCount++
			o.notePassed(a.version, a.row == nil)
		}
	}
	r.wakeWaiters()
	r.append(changes)
}

// append puts a commit into the log, and wakes who waits for it. The caller holds the lock.
func (r *Replica[V]) append(commit []change[V]) {
	if len(commit) == 0 {
		return
	}
	r.log.append(commit)
	if r.view != nil {
		r.view.logEnd = r.log.end // it shows what own writes show, so nothing of this is new to it
	}
	r.wakeWaiters()
}

// relist brings the copy to what a new watch shows at first, all at once, and tells followers what has changed. Own writes of a number
// from began on were acknowledged after the watch was asked for.
func (r *Replica[V]) relist(ctx context.Context, w storage.Watch, began int64) error {
	listed := map[key.Key]*Row[V]{}
	held := r.View()
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if ev.GetEndOfSnapshot() != nil {
			break
		}
		res := ev.GetUpsert().GetResource()
		if !r.has(res) {
			continue
		}
		row := held.Get(key.Of(res.GetId()))
		if row == nil || row.Version != res.GetVersion() {
			row = r.row(res)
		}
		listed[row.Key] = row
	}
	r.mu.Lock()
	r.cursor = w.Cursor()
	r.adopt(listed, began)
	some := len(r.localWrites) > 0
	r.mu.Unlock()
	switch {
	case !some:
		return nil
	case !r.barriers.haveBookmarks:
		return r.verifyLocal(ctx)
	}
	r.helpers.Go(func() { _ = r.Barrier(ctx) }) // its answer settles them
	return nil
}

// adopt makes what was listed the state of the copy. Own writes from before the list was asked for are part of it or overwritten; of later
// ones it is not known. The caller holds the lock.
func (r *Replica[V]) adopt(listed map[key.Key]*Row[V], began int64) {
	var changes []change[V]
	put := func(k key.Key, row *Row[V], version string) {
		r.noteArrival(k, version, row == nil)
		base := r.at(k)
		if o := r.localWrites[k]; o != nil {
			base = o.base
			mine := o.matches(version, row == nil)
			if o.base = row; o.barrierNumber >= began && (!mine || row == nil && o.pendingVersion != "") { // nothing is there yet, or nothing any more
				o.arrivalCount, o.next = o.arrivalCount+1, nil
				switch {
				case !mine:
					o.notePassed(version, row == nil)
				case base != nil:
					version = base.Version
				}
				if !same(base, row) {
					changes = append(changes, change[V]{key: k, before: base, after: row, version: version, cursor: r.cursor})
				}
				return
			}
			delete(r.localWrites, k)
			changes = append(changes, change[V]{key: k, before: base, after: row, cursor: r.cursor, settles: true})
		} else if !same(base, row) {
			changes = append(changes, change[V]{key: k, before: base, after: row, version: version, cursor: r.cursor})
		}
		if shown := r.at(k); !same(shown, row) {
			r.set(k, row)
		}
	}
	var gone []*Row[V]
	r.trees.rows.Scan(func(row *Row[V]) bool {
		if listed[row.Key] == nil {
			gone = append(gone, row)
		}
		return true
	})
	for k, o := range r.localWrites {
		if o.row == nil && listed[k] == nil {
			gone = append(gone, &Row[V]{Key: k, Version: o.version})
		}
	}
	for _, row := range gone {
		put(row.Key, nil, row.Version)
	}
	for k, row := range listed {
		put(k, row, row.Version)
	}
	for _, all := range r.inflight {
		for _, w := range all {
			w.sawRelist = true
		}
	}
	for k, o := range r.finishedWrites {
		if o.barrierNumber < began { // the list is newer than what was read
			delete(r.finishedWrites, k)
		}
	}
	r.listCount++
	r.view = nil
	r.wakeWaiters()
	r.append(changes)
}
