//go:build race

package tables

import (
	"crypto/sha256"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// digest is what finds programs that change shared objects, in builds for the race detector.
type digest [sha256.Size]byte

// digestOf returns the digest of all that an object holds.
func digestOf(t *table, object any) digest {
	res, err := t.encode(object)
	if err != nil {
		return sha256.Sum256([]byte(err.Error()))
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(res)
	if err != nil {
		return sha256.Sum256([]byte(err.Error()))
	}
	return sha256.Sum256(text)
}

// check panics if a program has changed the object.
func (e *entry) check() {
	if e != nil && e.object != nil && digestOf(e.table, e.object) != e.digest {
		panic(fmt.Sprintf("store: %s was changed by the program: what a Reader returns and what was put is shared, use Edit for a copy",
			idString(e.id)))
	}
}

// note is called with what a program is going to see.
func (r *reading) note(e *entry) {
	if e.check(); r.tx != nil {
		r = r.tx.r // also for what is read unchecked
	}
	r.seenRows = append(r.seenRows, e)
}

// assertUnchanged panics if the program has changed what it has seen, or put.
func (r *reading) assertUnchanged() {
	for _, e := range r.seenRows {
		e.check()
	}
	if r.tx == nil {
		return
	}
	for i := range r.tx.touchedKeys {
		if c := r.tx.touchedKeys[i].change; c != nil {
			c.result.check()
		}
	}
}

// seenEntries are the entries that a program has read.
type seenEntries []*entry
