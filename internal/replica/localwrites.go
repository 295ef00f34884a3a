package replica

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// localWrites are the writes of this program that the watch has yet to confirm; see the package comment for their states.
type localWrites[V any] struct {
	*state[V]
	uid                func(*Row[V]) string                        // of Options
	makeRow            func(*resourcepb.Resource, *Row[V]) *Row[V] // decodes a resource; see rowFrom
	backend            storage.Backend
	verify             func()                     // verifies the writes in the background, without bookmarks
	sentWrites         map[key.Key][]*Writing[V]  // by the keys they change
	acknowledgedWrites map[key.Key]*localWrite[V] // overlays over the rows
	deletedWrites      map[key.Key]*localWrite[V] // writes whose key was found absent, before the watch has delivered them
	writeCount         int64                      // number of acknowledged writes
}

// Writing is a commit of this program that was sent.
type Writing[V any] struct {
	local       *localWrites[V]
	keys        []key.Key
	startNumber int64               // writeCount when it was sent
	arrivals    map[versionKey]bool // changes of the keys that the watch has delivered since
	sawRelist   bool                // the store was listed again since
}

// versionKey is a version of a key, or its deletion.
type versionKey struct {
	key        key.Key
	version    string
	isDeletion bool
}

// Begin records that a commit is about to change keys. The caller must call End.
func (l *localWrites[V]) Begin(keys []key.Key) *Writing[V] {
	w := &Writing[V]{local: l, keys: keys}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.startNumber = l.writeCount
	for _, k := range keys {
		l.sentWrites[k] = append(l.sentWrites[k], w)
	}
	return w
}

// End makes the acknowledged changes of the commit, written and deleted resources, visible in all later Views, in one step. Pass nothing if the
// commit failed or its outcome is unknown. End returns the keys whose copy may be behind or ahead of the write. Their rows do not
// change until the watch has delivered the write; [Replica.Barrier] waits for that.
func (w *Writing[V]) End(written, deleted []*resourcepb.Resource) (unsure []key.Key) {
	rows := make([]*Row[V], len(written))
	for i, res := range written {
		rows[i] = w.local.makeRow(res, nil)
	}
	return w.EndWith(rows, deleted)
}

// EndWith is End for decoded rows.
func (w *Writing[V]) EndWith(rows []*Row[V], deleted []*resourcepb.Resource) (unsure []key.Key) {
	l := w.local
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.sawRelist && l.err == nil && !l.barriers.haveBookmarks {
		l.verify() // the list may include the write, or a later one
	}
	for _, k := range w.keys {
		if l.sentWrites[k] = slices.DeleteFunc(l.sentWrites[k], func(other *Writing[V]) bool { return other == w }); len(l.sentWrites[k]) == 0 {
			delete(l.sentWrites, k)
		}
	}
	for _, row := range rows {
		if !w.acknowledge(row.Key, overlay[V]{row: row, version: row.Version}) {
			unsure = append(unsure, row.Key)
		}
	}
	for _, res := range deleted {
		if k := key.Of(res.GetId()); !w.deletedNothing(k, res) && !w.acknowledge(k, overlay[V]{version: res.GetVersion()}) {
			unsure = append(unsure, k)
		}
	}
	l.waiters.notify()
	return unsure
}

// deletedNothing reports whether a deletion had no effect because the stored version has another uid. The caller holds the lock.
func (w *Writing[V]) deletedNothing(k key.Key, deleted *resourcepb.Resource) bool {
	if w.local.uid == nil {
		return false
	}
	current := w.local.rows.get(k)
	return current != nil && current.Version == deleted.GetVersion() && w.local.uid(current) != deleted.GetId().GetUid()
}

// acknowledge overlays the copy with a write, unless the watch has already delivered it. The caller holds the lock.
//
// It returns false, without an overlay, if the current state of the key may be newer: it was listed or written since the commit was sent, or the
// commit deleted a version that is not current. Without bookmarks it overlays a listed state nevertheless, and returns false.
func (w *Writing[V]) acknowledge(k key.Key, o overlay[V]) bool {
	l := w.local
	before := l.acknowledgedWrites[k]
	if w.arrivals[versionKey{k, o.version, o.row == nil}] {
		if before != nil && before.writeNumber <= w.startNumber { // an earlier write, so the watch is past it
			l.remove(k, before)
		}
		return true
	}
	current := l.rows.get(k)
	switch {
	case w.sawRelist && l.barriers.haveBookmarks, before != nil && before.writeNumber > w.startNumber:
		return false
	case o.row == nil && (current == nil || current.Version != o.version):
		return false
	}
	l.writeCount++
	write := &localWrite[V]{overlay: o, base: current, barrierNumber: l.barriers.requestCount, writeNumber: l.writeCount}
	if before != nil {
		write.base, write.pendingVersion = before.base, before.version
		write.coveredWrites = before.coverWith()
	}
	l.acknowledgedWrites[k] = write
	delete(l.deletedWrites, k)
	l.set(k, o.row)
	return !w.sawRelist
}

// noteArrival records a change of the watch for the commits in flight. The caller holds the lock.
func (l *localWrites[V]) noteArrival(k key.Key, version string, deleted bool) {
	for _, w := range l.sentWrites[k] {
		if w.arrivals == nil {
			w.arrivals = map[versionKey]bool{}
		}
		w.arrivals[versionKey{k, version, deleted}] = true
	}
}

// apply applies a change of the watch to the rows and completes it for the log. It returns false if the log needs no change. The caller holds the lock.
func (l *localWrites[V]) apply(c *change[V]) bool {
	k, row, version, deleted := c.key, c.after, c.version, c.after == nil
	l.noteArrival(k, version, deleted)
	if !deleted {
		l.applyDeletion(k, version)
	}
	write := l.acknowledgedWrites[k]
	if c.before = l.rows.get(k); write != nil {
		c.before = write.base
	}
	c.settles = write != nil && write.overtakenBy(version, deleted)
	hasChange := !same(c.before, row) // a watch may deliver the listed state again if the list was not a snapshot
	switch {
	case write == nil && hasChange:
		l.set(k, row)
	case write == nil:
	case c.settles || write.endsAt(version, deleted):
		delete(l.acknowledgedWrites, k)
		if c.settles && deleted { // possibly the deletion of an earlier incarnation
			l.rememberDeletion(k, write)
		}
		if !same(write.row, row) {
			l.set(k, row)
		}
	default:
		write.base = row
		write.arrivalCount++
		write.notePassed(version, deleted)
	}
	return hasChange
}

// relist applies a listed state of a key, nil for absent, and returns the change for the log, if there is one. version is the version of the row,
// or the last known one. began is the number of barriers when the list was requested: earlier writes are part of the list or overwritten, the
// state of later ones is unknown. The caller holds the lock.
func (l *localWrites[V]) relist(k key.Key, row *Row[V], version string, began int64) (c change[V], hasChange bool) {
	deleted := row == nil
	l.noteArrival(k, version, deleted)
	write := l.acknowledgedWrites[k]
	if write == nil {
		base := l.rows.get(k)
		if hasChange = !same(base, row); hasChange {
			l.set(k, row)
		}
		return change[V]{key: k, before: base, after: row, version: version, cursor: l.cursor}, hasChange
	}
	base := write.base
	write.base = row
	isWrite := write.matches(version, deleted)
	if write.barrierNumber >= began && (!isWrite || deleted && write.pendingVersion != "") { // not created yet, or already deleted
		write.arrivalCount, write.next = write.arrivalCount+1, nil
		switch {
		case !isWrite:
			write.notePassed(version, deleted)
		case base != nil:
			version = base.Version
		}
		return change[V]{key: k, before: base, after: row, version: version, cursor: l.cursor}, !same(base, row)
	}
	delete(l.acknowledgedWrites, k)
	if !same(l.rows.get(k), row) {
		l.set(k, row)
	}
	return change[V]{key: k, before: base, after: row, cursor: l.cursor, settles: true}, true
}

// finishRelist ends a relist. The caller holds the lock.
func (l *localWrites[V]) finishRelist(began int64) {
	for _, all := range l.sentWrites {
		for _, w := range all {
			w.sawRelist = true
		}
	}
	// The list is newer than the reads that found these keys absent.
	maps.DeleteFunc(l.deletedWrites, func(_ key.Key, write *localWrite[V]) bool { return write.barrierNumber < began })
}

// confirmUpTo removes the writes that were acknowledged before the barrier of a number was sent. The caller holds the lock.
func (l *localWrites[V]) confirmUpTo(number int64) {
	for k, write := range l.acknowledgedWrites {
		if write.barrierNumber < number {
			l.remove(k, write)
		}
	}
	maps.DeleteFunc(l.deletedWrites, func(_ key.Key, write *localWrite[V]) bool { return write.barrierNumber < number })
}

// remove removes the overlay of a write that the watch is past. The caller holds the lock.
func (l *localWrites[V]) remove(k key.Key, write *localWrite[V]) {
	delete(l.acknowledgedWrites, k)
	l.set(k, write.base)
	l.append([]change[V]{{key: k, before: write.base, after: write.base, cursor: l.cursor, settles: true}})
}

// rememberDeletion records that a key was found absent after a write that the watch may have yet to deliver. The caller holds the lock.
func (l *localWrites[V]) rememberDeletion(k key.Key, write *localWrite[V]) {
	pending := write.pendingVersion
	if write.row != nil {
		pending = write.version
	}
	if pending != "" {
		l.deletedWrites[k] = &localWrite[V]{
			overlay:       overlay[V]{version: write.version, pendingVersion: pending},
			barrierNumber: l.barriers.requestCount, writeNumber: write.writeNumber, coveredWrites: write.coveredWrites,
		}
	}
}

// applyDeletion overlays the copy with a deletion again if the watch is about to deliver a version of a key that was found absent afterwards. The
// caller holds the lock.
func (l *localWrites[V]) applyDeletion(k key.Key, version string) {
	write := l.deletedWrites[k]
	if write == nil || l.acknowledgedWrites[k] != nil || write.pendingVersion != version && !slices.ContainsFunc(write.coveredWrites, func(c coveredWrite) bool { return c.version == version }) {
		return
	}
	delete(l.deletedWrites, k)
	if write.base = l.rows.get(k); write.base != nil {
		l.set(k, nil)
	}
	l.acknowledgedWrites[k] = write
}

// rowOf returns the row of a resource that this program has written, nil for none.
func (l *localWrites[V]) rowOf(res *resourcepb.Resource) *Row[V] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if write := l.acknowledgedWrites[key.Of(res.GetId())]; write != nil && write.row != nil && write.version == res.GetVersion() {
		return write.row
	}
	return nil
}

// overlays returns the overlays of all keys. The caller holds the lock.
func (l *localWrites[V]) overlays() map[key.Key]overlay[V] {
	all := make(map[key.Key]overlay[V], len(l.acknowledgedWrites))
	for k, write := range l.acknowledgedWrites {
		all[k] = write.overlay
	}
	return all
}

// Cut returns the copy as delivered by the watch: the state after some commit. It lacks unconfirmed local writes, because it also lacks the other
// writes between.
func (l *localWrites[V]) Cut() *View[V] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.acknowledgedWrites) == 0 {
		return l.views.viewWithTrees()
	}
	cut := l.views.newView()
	all := l.rows.trees.copy()
	for k, write := range l.acknowledgedWrites {
		all.set(k, write.base, l.rows.index)
	}
	cut.snapshot.Store(all)
	return cut
}

// AwaitLocalWrites waits until the watch has delivered the local writes of matching keys that were acknowledged before the call.
func (l *localWrites[V]) AwaitLocalWrites(ctx context.Context, match func(key.Key) bool) error {
	until := int64(-1)
	return l.waitFor(ctx, nil, func() bool {
		if until < 0 {
			until = l.writeCount
		}
		for k, write := range l.acknowledgedWrites {
			if write.oldestNumber() <= until && match(k) {
				return false
			}
		}
		return true
	})
}

// runVerify decides the state of all local writes after a relist without bookmarks: it reads their keys from the database. It retries until ctx ends or the backend is closed.
func (l *localWrites[V]) runVerify(ctx context.Context) {
	for pause := minPause; ; pause = nextPause(pause) {
		if err := l.verifyAll(ctx); err == nil || errors.Is(err, storage.ErrClosed) {
			return
		}
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

// verifyAll verifies all local writes once.
func (l *localWrites[V]) verifyAll(ctx context.Context) error {
	l.mu.Lock()
	all := make([]key.Key, 0, len(l.acknowledgedWrites))
	for k := range l.acknowledgedWrites {
		all = append(all, k)
	}
	l.mu.Unlock()
	for _, k := range all {
		for isDecided := false; !isDecided; {
			var err error
			if isDecided, err = l.verifyKey(ctx, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyKey reads a key and compares the stored state with the local write. It returns false if the watch has delivered a change of the key
// meanwhile, because the order of that change and the read is unknown.
func (l *localWrites[V]) verifyKey(ctx context.Context, k key.Key) (bool, error) {
	l.mu.Lock()
	write := l.acknowledgedWrites[k]
	var arrivals int
	if write != nil {
		arrivals = write.arrivalCount
	}
	l.mu.Unlock()
	if write == nil {
		return true, nil
	}
	res, err := l.backend.Read(ctx, storage.StrongConsistency, k.ID("", ""))
	if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) {
		res, err = mismatch.Stored, nil
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	base := ""
	if write.base != nil {
		base = write.base.Version
	}
	switch stored := res.GetVersion(); {
	case l.acknowledgedWrites[k] != write:
	case write.arrivalCount != arrivals:
		return false, nil
	case write.row != nil && write.version == stored: // the watch is about to deliver the write
	case base == stored: // the base is at least as new as the write
		if stored == "" { // or it is from before the write, and the key was created and deleted since
			l.rememberDeletion(k, write)
		}
		l.remove(k, write)
	default: // the stored state follows the write, and the write may precede or follow the base
		write.next = &coveredWrite{version: stored, isDeletion: stored == ""}
	}
	return true, nil
}
