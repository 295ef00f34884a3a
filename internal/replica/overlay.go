package replica

// overlay is the state of a key after a local write.
type overlay[V any] struct {
	row     *Row[V] // nil for a deletion
	version string  // of the row, or the deleted version
	// pendingVersion, of a deletion, is a version that the watch has yet to deliver; "" once it has. The next deletion event then ends the overlay,
	// even if another program caused it: a local deletion succeeds in that case too.
	pendingVersion string
}

// matches reports whether a change of the watch is the write.
func (o *overlay[V]) matches(version string, deleted bool) bool {
	return o.version == version && deleted == (o.row == nil)
}

// endsAt reports whether a change of the watch ends the overlay: it is the write, or it is a later deletion while the key is overlaid
// as deleted.
func (o *overlay[V]) endsAt(version string, deleted bool) bool {
	return o.matches(version, deleted) || deleted && o.row == nil && o.pendingVersion == ""
}

// notePassed records a version that the watch has delivered.
func (o *overlay[V]) notePassed(version string) {
	if o.pendingVersion == version {
		o.pendingVersion = ""
	}
}

// localWrite is an acknowledged write of this program that the watch has yet to confirm.
type localWrite[V any] struct {
	overlay[V]
	base          *Row[V]        // state of the key as delivered by the watch; nil for none
	barrierNumber int64          // number of the latest earlier barrier; a later one confirms the write
	writeNumber   int64          // number of this write
	coveredWrites []coveredWrite // earlier unconfirmed writes of the key, in order; if there are many, the last one stands for several
	arrivalCount  int            // number of changes of the key that the watch has delivered since
	next          *coveredWrite  // a later stored state that the watch has yet to deliver; nil if unknown
}

// coveredWrite is a write that was overwritten.
type coveredWrite struct {
	version    string
	isDeletion bool
	number     int64
}

// maxCovered bounds the covered writes of a key, and so the memory for a key that is written often while the watch is down.
const maxCovered = 64

// coverWith returns the covered writes of the next write of the key, which covers w.
func (o *localWrite[V]) coverWith() []coveredWrite {
	covered := coveredWrite{o.version, o.row == nil, o.writeNumber}
	if last := len(o.coveredWrites) - 1; len(o.coveredWrites) == maxCovered {
		covered.number = o.coveredWrites[last].number // a caller that waits for the replaced write waits for this one
		o.coveredWrites[last] = covered
		return o.coveredWrites
	}
	return append(o.coveredWrites, covered)
}

// oldestNumber returns the number of the oldest unconfirmed write of the key.
func (o *localWrite[V]) oldestNumber() int64 {
	if len(o.coveredWrites) > 0 {
		return o.coveredWrites[0].number
	}
	return o.writeNumber
}

// overtakenBy reports whether a change of the watch is known to follow the write.
func (o *localWrite[V]) overtakenBy(version string, deleted bool) bool {
	return o.next != nil && deleted == o.next.isDeletion && (deleted || version == o.next.version)
}

// notePassed records a delivered or listed state of the key that does not confirm the write.
func (o *localWrite[V]) notePassed(version string, deleted bool) {
	for i, covered := range o.coveredWrites {
		if covered.version == version && covered.isDeletion == deleted {
			o.coveredWrites = o.coveredWrites[i+1:]
			break
		}
	}
	o.overlay.notePassed(version)
}
