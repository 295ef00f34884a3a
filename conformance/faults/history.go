package faults

import (
	"math"
	"sync"
	"time"
)

// fate is what a caller was told about a call.
type fate int

const (
	unknown fate = iota // nothing, or that nobody knows
	done
	refused // for good: it has changed nothing
)

// state is what is stored under a key; the zero value is nothing.
type state struct{ uid, version string }

// verb is what a part of a call does to its key.
type verb string

const (
	read   verb = "read"
	write  verb = "write"
	remove verb = "delete"
	demand verb = "check" // of a transaction
)

// part is what a call does to one key, and what it was told about it.
type part struct {
	verb  verb
	key   string
	given state  // what the caller said is there
	taken bool   // of a delete: it is refused where that is not there
	name  string // of a write: it is stored with it
	owner string // of a write: what it names as the owner
	got   state  // read: what was there; write: what it left
	shown string // read: the name of the write that was there
	cause error  // why this part was refused: a sentinel
}

// refusal is why the part is refused where s is stored; nil if it is not.
func (p part) refusal(s state) error {
	if p.taken {
		return refusal(demand, p.given, s)
	}
	return refusal(p.verb, p.given, s)
}

// forever is the end of calls that have none.
const forever = time.Duration(math.MaxInt64)

// call is one call of the store's interface. Times are since the start of the run.
type call struct {
	id         int
	kind       string // "strong read", "write", ...
	client     string
	handle     int
	process    int // which process of the handle it was made in; -1: in more than one
	parts      []part
	strong     bool // a read that has to be linearizable
	cut        bool // its reads are of one moment
	paged      bool
	owner      string            // of owner references: whose
	owned      map[string]string // of owner references: the uids by key
	begin, end time.Duration     // between which it happened: an unknown change may happen later than the call returned
	returned   time.Duration
	patience   time.Duration // its deadline; 0: none of its own
	fate       fate
	err        error
	revision   int64 // of a swap that was done
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

// reads reports whether the call only looks, and cannot be refused.
func (c *call) reads() bool {
	for _, p := range c.parts {
		if p.verb != read {
			return false
		}
	}
	return true
}

// history is what happened in one round.
type history struct {
	full      func() // called when there are enough calls for one round
	mu        sync.Mutex
	calls     []*call
	bookmarks []bookmark
	probes    []*probe
	waits     []wait // that were long at first sight
	faults    []episode
	gone      []forgotten
	views     []*view
	readings  []reading
	oddities  []Violation // what was wrong at first sight
}

// enough is how many calls a round has at most, give or take those under way.
const enough = 40_000

// episode is the time in which a fault was there.
type episode struct {
	kind       Kind
	begin, end time.Duration
}

// bookmark is the answer to the question how far a follower is.
type bookmark struct {
	follower *follower
	asked    time.Duration
	at       int // events of the round that the follower had seen by then
}

// copy is the history as it is now.
func (h *history) copy() *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &history{calls: h.calls, bookmarks: h.bookmarks, probes: h.probes, waits: h.waits, faults: h.faults, gone: h.gone, views: h.views, readings: h.readings, oddities: h.oddities}
}

func (h *history) enter(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.id = len(h.calls)
	if h.calls = append(h.calls, c); len(h.calls) == enough {
		h.full()
	}
}

// odd notes a violation that one look is enough for.
func (h *history) odd(v Violation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.oddities = append(h.oddities, v)
}
