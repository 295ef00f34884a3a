package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// feed applies a watch to the state, and opens the next watch when one has ended.
type feed[V any] struct {
	*localWrites[V]
	types   []storage.UnversionedType // none for all
	endCh   chan struct{}             // closed when the feed has ended
	helpers sync.WaitGroup            // the broadcaster and verifications
}

// watchedTypes returns the filter of the single watch of all types.
func (f *feed[V]) watchedTypes() storage.UnversionedType {
	all := storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	if len(f.types) > 0 {
		all = f.types[0]
	}
	for _, t := range f.types {
		switch {
		case t == all:
		case t.Group == all.Group:
			all.Kind = storage.Wildcard
		default:
			all.Group, all.Kind = storage.Wildcard, storage.Wildcard
		}
	}
	return all
}

// open opens the watch that feeds the copy.
func (f *feed[V]) open(ctx context.Context) (storage.Watch, error) {
	w, err := f.backend.WatchList(ctx, f.watchedTypes(), allTenancies(), "")
	return f.skipDamage(w), err
}

// WatchFrom returns a watch of the backend of the changes after a cursor. It includes the copied types and may include others.
func (f *feed[V]) WatchFrom(ctx context.Context, cursor string) (storage.Watch, error) {
	resumer, ok := storage.As[storage.Resumer](f.backend)
	if !ok {
		return nil, fmt.Errorf("%w: the backend cannot resume a watch", storage.ErrInvalid)
	}
	w, err := resumer.WatchFrom(ctx, f.watchedTypes(), allTenancies(), "", cursor)
	return f.skipDamage(w), err
}

func allTenancies() *resourcepb.Tenancy {
	return &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
}

// skipDamage makes a watch skip the damaged resources of types that are not copied, and end if the versions of all resources change.
func (f *feed[V]) skipDamage(w storage.Watch) storage.Watch {
	if moving, ok := w.(interface{ EndAtMove() }); ok {
		moving.EndAtMove()
	}
	if skipper, ok := w.(damageSkipper); ok && len(f.types) > 1 {
		skipper.SkipDamage(func(t storage.UnversionedType) bool { return !slices.Contains(f.types, t) })
	}
	return w
}

// damageSkipper is a watch that can skip the damaged resources of some types.
type damageSkipper interface {
	SkipDamage(of func(storage.UnversionedType) bool)
}

// hasType reports whether a resource has a copied type.
func (f *feed[V]) hasType(res *resourcepb.Resource) bool {
	return len(f.types) == 0 || slices.Contains(f.types, storage.UnversionedTypeFrom(res.GetId().GetType()))
}

// prime fills the rows with the snapshot of the first watch, row by row.
func (f *feed[V]) prime(ctx context.Context, w storage.Watch) error {
	previous := &Row[V]{}
	for {
		ev, err := w.Next(ctx)
		switch {
		case err != nil:
			return err
		case ev.GetEndOfSnapshot() != nil:
			f.cursor = w.Cursor()
			return nil
		case f.hasType(ev.GetUpsert().GetResource()):
			previous = f.makeRow(ev.GetUpsert().GetResource(), previous)
			f.rows.load(previous) // no View exists yet
		}
	}
}

// run applies watches until ctx ends or the backend is closed.
func (f *feed[V]) run(ctx context.Context, w storage.Watch) {
	defer close(f.endCh)
	var pause time.Duration
	for {
		hasEvents, err := f.applyWatch(ctx, w)
		w.Close()
		if pause = nextPause(pause); hasEvents {
			pause = 0 // watches that end without an event must not cause continuous relists
		}
		if w = f.reopen(ctx, err, pause); w == nil {
			return
		}
	}
}

// reopen lists the store again after a pause and returns the new watch. It returns nil if ctx has ended or the backend was closed.
func (f *feed[V]) reopen(ctx context.Context, err error, pause time.Duration) storage.Watch {
	for ; ; pause = nextPause(pause) {
		if ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
			f.end(fmt.Errorf("the copy: %w", storage.ErrClosed))
			return nil
		}
		_ = sleep(ctx, pause) // if ctx has ended, open fails
		f.mu.Lock()
		f.barriers.requestCount++ // the list may lack writes that are acknowledged from now on
		began := f.barriers.requestCount
		f.mu.Unlock()
		var w storage.Watch
		if w, err = f.open(ctx); err == nil {
			if err = f.relistFrom(ctx, w, began); err == nil {
				return w
			}
			w.Close()
		}
		f.mu.Lock()
		f.interrupt(err)
		f.mu.Unlock()
	}
}

// applyWatch applies the changes of a watch until it ends, and reports whether it had any events.
func (f *feed[V]) applyWatch(ctx context.Context, w storage.Watch) (hasEvents bool, err error) {
	f.mu.Lock()
	f.isLive, f.watch = true, w
	f.notifyHealth()
	f.barriers.setWatch(w)
	if f.relistFromNumber > f.listNumber {
		w.Close() // Relist was called while the watch was opened
	}
	f.mu.Unlock()
	var commit []change[V]
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			f.mu.Lock()
			f.interrupt(err)
			f.mu.Unlock()
			return hasEvents, err
		}
		hasEvents = true
		if ev.GetBookmark() != nil {
			f.mu.Lock()
			f.confirmUpTo(f.barriers.finishRequest())
			f.mu.Unlock()
			continue
		}
		if c, ok := f.changeOf(ev); ok {
			c.cursor = w.Cursor()
			commit = append(commit, c)
		}
		if !ev.GetMore() && len(commit) > 0 {
			f.applyCommit(commit)
			clear(commit)
			commit = commit[:0]
		}
	}
}

// changeOf returns the change of an event without its earlier state, if its resource has a copied type. It reuses the row of a local write.
func (f *feed[V]) changeOf(ev *resourcepb.WatchEvent) (c change[V], ok bool) {
	if res := ev.GetDelete().GetResource(); res != nil && f.hasType(res) {
		return change[V]{key: key.Of(res.GetId()), version: res.GetVersion()}, true
	}
	res := ev.GetUpsert().GetResource()
	if res == nil || !f.hasType(res) {
		return c, false
	}
	row := f.rowOf(res)
	if row == nil {
		row = f.makeRow(res, nil)
	}
	return change[V]{key: row.Key, version: row.Version, after: row}, true
}

// applyCommit makes a commit visible.
func (f *feed[V]) applyCommit(commit []change[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changes := make([]change[V], 0, len(commit))
	for _, c := range commit {
		f.cursor = c.cursor
		if f.apply(&c) {
			changes = append(changes, c)
		}
	}
	f.waiters.notify()
	f.append(changes)
}

// relistFrom replaces the copy by the snapshot of a new watch, in one step, and appends the differences to the log. began is the number of
// barriers when the watch was requested.
func (f *feed[V]) relistFrom(ctx context.Context, w storage.Watch, began int64) error {
	listed := map[key.Key]*Row[V]{}
	current := f.View()
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if ev.GetEndOfSnapshot() != nil {
			break
		}
		res := ev.GetUpsert().GetResource()
		if !f.hasType(res) {
			continue
		}
		row := current.Get(key.Of(res.GetId()))
		if row == nil || row.Version != res.GetVersion() {
			row = f.makeRow(res, row)
		}
		listed[row.Key] = row
	}
	f.mu.Lock()
	f.cursor = w.Cursor()
	f.adopt(listed, began)
	hasWrites := len(f.acknowledgedWrites) > 0
	f.mu.Unlock()
	switch {
	case !hasWrites:
		return nil
	case !f.barriers.haveBookmarks:
		return f.verifyAll(ctx)
	}
	f.helpers.Go(func() { _ = f.Barrier(ctx) }) // its answer confirms the writes
	return nil
}

// adopt makes the listed rows the state of the copy. The caller holds the lock.
func (f *feed[V]) adopt(listed map[key.Key]*Row[V], began int64) {
	var absent []*Row[V]
	f.rows.trees.rows.Scan(func(row *Row[V]) bool {
		if listed[row.Key] == nil {
			absent = append(absent, row)
		}
		return true
	})
	for k, write := range f.acknowledgedWrites {
		if write.row == nil && listed[k] == nil {
			absent = append(absent, &Row[V]{Key: k, Version: write.version})
		}
	}
	var changes []change[V]
	put := func(k key.Key, row *Row[V], version string) {
		if c, ok := f.relist(k, row, version, began); ok {
			changes = append(changes, c)
		}
	}
	for _, row := range absent {
		put(row.Key, nil, row.Version)
	}
	for k, row := range listed {
		put(k, row, row.Version)
	}
	f.finishRelist(began)
	f.listNumber = began
	f.views.listCount++
	f.views.current = nil
	f.waiters.notify()
	f.append(changes)
}

// broadcast wakes the waiters when they are many, until the feed has ended.
func (f *feed[V]) broadcast() {
	for {
		select {
		case <-f.endCh:
			return
		case <-f.waiters.wakeAll:
		}
		f.mu.Lock()
		f.waiters.release()
		f.mu.Unlock()
	}
}
