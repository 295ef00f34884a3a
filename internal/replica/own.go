package replica

import (
	"slices"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// localWrite is a write of this program that lies over what the watch has brought.
type localWrite[V any] struct {
	overlay[V]
	base          *Row[V]        // what the watch has brought; nil for nothing
	barrierNumber int64          // of the barriers asked for before: a later one settles it
	writeNumber   int64          // number of this write
	coveredWrites []coveredWrite // what lay there before, and the watch has not brought either, in order; of many, some stand for those before them
	arrivalCount  int            // counts what the watch has brought since
	next          *coveredWrite  // was stored after the write, and the watch has yet to bring it; nil if that is not known
}

// coveredWrite is a write that another one has covered.
type coveredWrite struct {
	version    string
	isDeletion bool
	number     int64
}

// maxCovered is how many covered writes of a key are told apart, so that a watch that is away for long costs no memory for each of them.
const maxCovered = 64

// coverWith returns what lies under a write that covers this one.
func (o *localWrite[V]) coverWith() []coveredWrite {
	one := coveredWrite{o.version, o.row == nil, o.writeNumber}
	if last := len(o.coveredWrites) - 1; len(o.coveredWrites) == maxCovered {
		one.number = o.coveredWrites[last].number // who waits for that one waits for this one
		o.coveredWrites[last] = one
		return o.coveredWrites
	}
	return append(o.coveredWrites, one)
}

// oldestNumber returns the number of the oldestNumber write that the watch has not brought.
func (o *localWrite[V]) oldestNumber() int64 {
	if len(o.coveredWrites) > 0 {
		return o.coveredWrites[0].number
	}
	return o.writeNumber
}

// endsAt reports whether a change that the watch has brought is the write, or comes after it.
func (o *overlay[V]) endsAt(version string, deleted bool) bool {
	return o.matches(version, deleted) || deleted && o.row == nil && o.pendingVersion == ""
}

// overtakenBy reports whether a change that the watch has brought is known to come after the write.
func (o *localWrite[V]) overtakenBy(version string, deleted bool) bool {
	return o.next != nil && deleted == o.next.isDeletion && (deleted || version == o.next.version)
}

// notePassed notes a change that does not settle the write.
func (o *localWrite[V]) notePassed(version string, deleted bool) {
	for i, one := range o.coveredWrites {
		if one.version == version && one.isDeletion == deleted {
			o.coveredWrites = o.coveredWrites[i+1:]
			break
		}
	}
	o.overlay.notePassed(version)
}

// notePassed notes a version that the watch has brought.
func (o *overlay[V]) notePassed(version string) {
	if o.pendingVersion == version {
		o.pendingVersion = ""
	}
}

// matches reports whether a change that the watch has brought matches the write.
func (o *overlay[V]) matches(version string, deleted bool) bool {
	return o.version == version && deleted == (o.row == nil)
}

// same reports whether two states of a key are the same.
func same[V any](a, b *Row[V]) bool {
	return a == b || a != nil && b != nil && a.Version == b.Version
}

// overlay is what a write has left.
type overlay[V any] struct {
	row     *Row[V] // nil for a deletion
	version string  // that of row, or the one that was deleted
	// pendingVersion, of a deletion, is a version that the watch has yet to bring, and "" once it has. The first deletion after that settles the
	// write, whoever has made it: a deletion succeeds where another program was faster.
	pendingVersion string
}

// Writing is a commit under way.
type Writing[V any] struct {
	r           *Replica[V]
	keys        []key.Key
	startNumber int64               // what had been laid before
	arrivals    map[versionKey]bool // what the watch has brought meanwhile
	sawRelist   bool                // the store was listed anew meanwhile
}

// versionKey is a version of a key, or its deletion.
type versionKey struct {
	key        key.Key
	version    string
	isDeletion bool
}

// Begin notes that a commit is going to change keys. End has to follow.
func (r *Replica[V]) Begin(keys []key.Key) *Writing[V] {
	w := &Writing[V]{r: r, keys: keys}
	r.mu.Lock()
	defer r.mu.Unlock()
	w.startNumber = r.writeCount
	for _, k := range keys {
		r.inflight[k] = append(r.inflight[k], w)
	}
	return w
}

// End ends it. What was acknowledged, the resources written and those deleted, is in all Views from now on; nothing if the commit failed,
// or if its outcome is unknown. All of it becomes visible at once. It returns the keys of which the copy cannot tell whether it is behind
// the write or ahead of it; for these it stays as it is until the watch has brought the write, for which a [Replica.Barrier] waits.
func (w *Writing[V]) End(written, deleted []*resourcepb.Resource) (unsure []key.Key) {
	rows := make([]*Row[V], len(written))
	for i, res := range written {
		rows[i] = w.r.row(res)
	}
	return w.EndWith(rows, deleted)
}

// EndWith is End for rows that the caller has made of what was written.
func (w *Writing[V]) EndWith(rows []*Row[V], deleted []*resourcepb.Resource) (unsure []key.Key) {
	r := w.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.sawRelist && r.endErr == nil && !r.barriers.haveBookmarks {
		r.helpers.Go(r.retryVerifyLocal) // the list may have had the write, or what came after it
	}
	for _, k := range w.keys {
		others := r.inflight[k][:0]
		for _, other := range r.inflight[k] {
			if other != w {
				others = append(others, other)
			}
		}
		if r.inflight[k] = others; len(others) == 0 {
			delete(r.inflight, k)
		}
	}
	for _, row := range rows {
		if !w.applyLocal(row.Key, overlay[V]{row: row, version: row.Version}) {
			unsure = append(unsure, row.Key)
		}
	}
	for _, res := range deleted {
		if k := key.Of(res.GetId()); !w.deletedNothing(k, res) && !w.applyLocal(k, overlay[V]{version: res.GetVersion()}) {
			unsure = append(unsure, k)
		}
	}
	r.wakeWaiters()
	return unsure
}

// deletedNothing reports whether a deletion has deleted nothing, since its version is that of another uid. The caller holds the lock.
func (w *Writing[V]) deletedNothing(k key.Key, deleted *resourcepb.Resource) bool {
	if w.r.opts.Uid == nil {
		return false
	}
	shown := w.r.at(k)
	return shown != nil && shown.Version == deleted.GetVersion() && w.r.opts.Uid(shown) != deleted.GetId().GetUid()
}

// applyLocal puts a write over what the watch has brought, unless it has brought the write. It lays nothing and returns false if what it would
// cover may be newer: what was listed anew or laid since the commit began, or, if nothing of this version is there to be deleted, what came
// after that. Where watches prove nothing, it lays the write over what was listed anew, too, and returns false. The caller holds the lock.
func (w *Writing[V]) applyLocal(k key.Key, o overlay[V]) bool {
	r := w.r
	before := r.localWrites[k]
	if w.arrivals[versionKey{k, o.version, o.row == nil}] {
		if before != nil && before.writeNumber <= w.startNumber { // it came before the write, so the watch has passed it
			r.removeLocal(k, before)
		}
		return true
	}
	shown := r.at(k)
	switch {
	case w.sawRelist && r.barriers.haveBookmarks, before != nil && before.writeNumber > w.startNumber:
		return false
	case o.row == nil && (shown == nil || shown.Version != o.version):
		return false
	}
	r.writeCount++
	over := &localWrite[V]{overlay: o, base: shown, barrierNumber: r.barriers.requestCount, writeNumber: r.writeCount}
	if before != nil {
		over.base, over.pendingVersion = before.base, before.version
		over.coveredWrites = before.coverWith()
	}
	r.localWrites[k] = over
	delete(r.finishedWrites, k)
	r.set(k, o.row)
	return !w.sawRelist
}

// noteArrival tells commits under way what the watch has brought. The caller holds the lock.
func (r *Replica[V]) noteArrival(k key.Key, version string, deleted bool) {
	for _, w := range r.inflight[k] {
		if w.arrivals == nil {
			w.arrivals = map[versionKey]bool{}
		}
		w.arrivals[versionKey{k, version, deleted}] = true
	}
}

// confirmUpTo drops what lies over the rest, and has for longer than a barrier that was asked for as this number. The caller holds the lock.
func (r *Replica[V]) confirmUpTo(number int64) {
	for k, o := range r.localWrites {
		if o.barrierNumber < number {
			r.removeLocal(k, o)
		}
	}
	for k, o := range r.finishedWrites {
		if o.barrierNumber < number {
			delete(r.finishedWrites, k)
		}
	}
}

// removeLocal drops a write that lies over the rest: the watch has been where it was. The caller holds the lock.
func (r *Replica[V]) removeLocal(k key.Key, o *localWrite[V]) {
	delete(r.localWrites, k)
	r.set(k, o.base)
	r.append([]change[V]{{key: k, before: o.base, after: o.base, cursor: r.cursor, settles: true}})
}

// rememberDeletion notes that a key was found empty after an own write, and that the watch may have yet to bring the write. The caller holds the lock.
func (r *Replica[V]) rememberDeletion(k key.Key, o *localWrite[V]) {
	life := o.pendingVersion
	if o.row != nil {
		life = o.version
	}
	if life != "" {
		r.finishedWrites[k] = &localWrite[V]{overlay: overlay[V]{version: o.version, pendingVersion: life}, barrierNumber: r.barriers.requestCount, writeNumber: o.writeNumber, coveredWrites: o.coveredWrites}
	}
}

// applyDeletion lays the deletion over the copy that is the end of an own write, if the watch brings that after it was found gone: it is not shown
// again. The caller holds the lock.
func (r *Replica[V]) applyDeletion(k key.Key, version string) {
	o := r.finishedWrites[k]
	if o == nil || r.localWrites[k] != nil {
		return
	}
	if o.pendingVersion != version && !slices.ContainsFunc(o.coveredWrites, func(one coveredWrite) bool { return one.version == version }) {
		return
	}
	delete(r.finishedWrites, k)
	if o.base = r.at(k); o.base != nil {
		r.set(k, nil)
	}
	r.localWrites[k] = o
}

// overlays are what lies over the rest. The caller holds the lock.
func (r *Replica[V]) overlays() map[key.Key]overlay[V] {
	if len(r.localWrites) == 0 {
		return nil
	}
	all := make(map[key.Key]overlay[V], len(r.localWrites))
	for k, o := range r.localWrites {
		all[k] = o.overlay
	}
	return all
}
