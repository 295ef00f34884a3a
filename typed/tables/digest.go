//go:build !race

package tables

// digest is what finds programs that change shared objects, in builds for the race detector. Here it costs nothing.
type digest struct{}

func digestOf(*table, any) digest { return digest{} }

// note is called with what a program is going to see.
func (r *reading) note(*entry) {}

// assertUnchanged panics if the program has changed what it has seen, or put.
func (r *reading) assertUnchanged() {}

// seenEntries are the entries that a program has read.
type seenEntries struct{}
