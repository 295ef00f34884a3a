package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-dev/storage"
)

// outcome is the result of a call as its caller knows it.
type outcome int

// verb is the effect of a part of a call on its key.
type verb string

const (
	outcomeUnknown outcome = iota // no answer, or an answer that leaves it open
	outcomeDone
	outcomeRefused // for good: it has changed nothing
)

const (
	read   verb = "read"
	write  verb = "write"
	remove verb = "delete"
	demand verb = "check" // of a transaction
)

// state is the stored uid and version under a key. The zero value means that nothing is stored.
type state struct{ uid, version string }

func (s state) String() string {
	switch {
	case s == state{}:
		return "nothing"
	case s.version == "":
		return "nothing of " + s.uid
	}
	return "version " + s.version
}

// part is the part of a call that concerns one key, with its answer.
type part struct {
	verb          verb
	key           string
	expectedState state  // the state that the caller claims
	mustExist     bool   // of a delete: it is refused if expected is not stored
	name          string // of a write: its unique name, stored in the resource
	owner         string // of a write: the owner of the new resource
	observedState state  // read: the state that was read; write: the state after it
	writeName     string // read: the name of the write whose result was read
	refusalCause  error  // the sentinel error of a refused part
}

// refusal returns the reason why the part is refused if s is stored, or nil.
func (p part) refusal(s state) error {
	if p.mustExist {
		return refusal(demand, p.expectedState, s)
	}
	return refusal(p.verb, p.expectedState, s)
}

func (p part) String() string {
	switch p.verb {
	case read:
		return fmt.Sprintf("%s is %s", shortKey(p.key), p.observedState)
	case write:
		text := fmt.Sprintf("write %s to %s in place of %s", p.name, shortKey(p.key), p.expectedState)
		if p.observedState.version != "" {
			text += " → " + p.observedState.version
		}
		return text
	}
	return fmt.Sprintf("%s %s at %s", p.verb, shortKey(p.key), p.expectedState)
}

// call is one call of the store's interface. Times are since the start of the run.
type call struct {
	id             int
	kind           string // "strong read", "write", ...
	client         string
	handle         int
	process        int // number of the handle's process; -1: more than one
	parts          []part
	strong         bool // a read that must be linearizable
	isSnapshot     bool // its reads are of one moment
	mayBeCompacted bool
	owner          string            // of owner references: whose
	references     map[string]string // of owner references: the uids by key
	begin, end     time.Duration     // between which it happened: an unknown change may happen later than the call returned
	returnTime     time.Duration
	timeout        time.Duration // its deadline; 0: none
	outcome        outcome
	err            error
	revision       int64 // of a swap that was done
}

// changes reports whether the call would change anything.
func (c *call) changes() bool {
	for _, p := range c.parts {
		if p.verb == write || p.verb == remove {
			return true
		}
	}
	return false
}

// reads reports whether the call only reads. Such a call cannot be refused.
func (c *call) reads() bool {
	for _, p := range c.parts {
		if p.verb != read {
			return false
		}
	}
	return true
}

// children formats the answer of owner references.
func (c *call) children() string {
	if len(c.references) == 0 {
		return "none"
	}
	var names []string
	for _, key := range slices.Sorted(maps.Keys(c.references)) {
		names = append(names, shortKey(key))
	}
	return strings.Join(names, ", ")
}

// String formats the call and its answer.
func (c *call) String() string {
	var parts []string
	for _, p := range c.parts {
		if len(parts) == 6 {
			parts = append(parts, fmt.Sprintf("and %d more", len(c.parts)-6))
			break
		}
		parts = append(parts, p.String())
	}
	text := fmt.Sprintf("[%s to %s] %s on handle %d: %s", formatTime(c.begin), formatTime(c.returnTime), c.client, c.handle, c.kind)
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, "; ") + ")"
	}
	if c.owner != "" {
		text += " of " + c.owner
	}
	switch {
	case c.outcome == outcomeDone && c.owner != "":
		return fmt.Sprintf("%s: %s", text, c.children())
	case c.outcome == outcomeDone:
		return text + ": done"
	case c.outcome == outcomeUnknown:
		return fmt.Sprintf("%s: outcome unknown: %v", text, c.err)
	}
	return fmt.Sprintf("%s: refused: %v", text, c.err)
}

// refusal implements the decision tables: it returns the reason why a part of a call is refused if s is stored, or nil.
func refusal(v verb, given, s state) error {
	nothing := s == state{}
	switch {
	case v == remove && (nothing || s.uid != given.uid):
		return nil
	case nothing && given.version == "":
		return nil
	case nothing:
		return storage.ErrCASFailure
	case s.uid != given.uid && given.uid != "":
		return storage.ErrWrongUid
	case s.version != given.version:
		return storage.ErrCASFailure
	}
	return nil
}
