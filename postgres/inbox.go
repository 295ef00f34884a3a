package postgres

import (
	"slices"
	"sync"
	"sync/atomic"
)

// inbox is where one run of the feed is told that there is something new: look in the database, or, for changes that this handle
// made, here they are. Those it takes as they are instead of reading them back, if the change after the last is the next: nobody
// else's can then be in between.
//
// Each run has an inbox of its own, because one may still be ending when the next begins.
type inbox struct {
	bell chan struct{} // holds a token when there may be something

	mu       sync.Mutex
	own      []change
	bytes    int
	look     bool
	listings []position // of watches that may have seen more than the feed
}

// inboxBytes bounds what waits for a feed that waits for the database, and what waits for changes before it. What is beyond, a poll
// reads.
const inboxBytes = 8 << 20

func weight(changes []change) (bytes int) {
	for i := range changes {
		bytes += len(changes[i].data)
	}
	return bytes
}

// currentInbox leads to the inbox of the run that is under way; what comes while there is none is dropped.
type currentInbox struct{ run atomic.Pointer[inbox] }

// open makes a new inbox. What was changed before, the first look of its run sees.
func (c *currentInbox) open() *inbox {
	in := &inbox{bell: make(chan struct{}, 1)}
	c.run.Store(in)
	return in
}

// close ends what open began, unless another run has opened one already.
func (c *currentInbox) close(in *inbox) { c.run.CompareAndSwap(in, nil) }

func (c *currentInbox) add(own []change, look bool) {
	if in := c.run.Load(); in != nil {
		in.add(own, look)
	}
}

// lookAgain has the feed look in the database.
func (c *currentInbox) lookAgain() { c.add(nil, true) }

func (c *currentInbox) listed(at *position) {
	if in := c.run.Load(); in != nil {
		in.listed(at)
	}
}

// add puts own changes in, or asks for a look in the database.
func (in *inbox) add(own []change, look bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.bytes += weight(own)
	in.look = in.look || look
	in.own = append(in.own, own...)
	if in.bytes > inboxBytes {
		in.look, in.own, in.bytes = true, nil, 0
	}
	select {
	case in.bell <- struct{}{}:
	default: // it is ringing already
	}
}

// take empties the inbox.
func (in *inbox) take() (own []change, look bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	own, look = in.own, in.look
	in.own, in.look, in.bytes = nil, false, 0
	return own, look
}

// listed has the feed prove the position of a watch once more when it has come there itself. A fail-over that loses commits may come
// in between: then other changes bear the numbers that the watch takes for seen, and the feed, which was behind, goes on through them.
func (in *inbox) listed(at *position) {
	if at.revision == 0 && len(at.ahead) == 0 {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if n := len(in.listings); n > 0 && compare(at, &in.listings[n-1]) == 0 &&
		at.piece == in.listings[n-1].piece && at.aheadPiece == in.listings[n-1].aheadPiece {
		return
	}
	in.listings = append(in.listings, *at)
}

// takeListings takes out the positions of watches.
func (in *inbox) takeListings() []position {
	in.mu.Lock()
	defer in.mu.Unlock()
	listings := in.listings
	in.listings = nil
	return listings
}

// ownChanges returns the changes of mutations that a statement carried out, in order; look is set if it takes a look in the
// database to learn them: of a deletion only the database knows what it deleted, and what a pooler answers for may be another
// database by now, whose history is not the one that the feed has shown.
func ownChanges(ms []*mutation) (own []change, look bool) {
	for _, m := range ms {
		switch {
		case !m.changed():
		case m.created == 0 || m.kind == kindDelete || m.pooled:
			return nil, true
		default:
			c := change{
				at: position{revision: m.revision, place: m.place}, session: m.session,
				kind: m.kind, key: m.keyBytes, version: m.token, data: m.data, created: m.created, writes: m.writes,
			}
			copy(c.at.piece[:], m.token)
			own = append(own, c)
		}
	}
	slices.SortFunc(own, func(x, y change) int { return compare(&x.at, &y.at) })
	for i := range own[:max(0, len(own)-1)] {
		own[i].more = own[i].at.revision == own[i+1].at.revision
	}
	return own, false
}

// following takes from changes those that come next after a position without a gap, of sessions up to a number. The rest stays,
// less what the position contains. The changes of one commit are all there, or none.
func following(changes []change, at *position, session uint64) (next, rest []change) {
	slices.SortFunc(changes, func(x, y change) int { return compare(&x.at, &y.at) })
	last, inside := at.revision, false // inside a commit
	for i := range changes {
		c := &changes[i]
		switch {
		case at.contains(&c.at):
		case len(rest) == 0 && c.session <= session && (c.at.revision == last+1 || c.at.revision == last && inside):
			next = append(next, *c)
			last, inside = c.at.revision, c.more
		default:
			rest = append(rest, *c)
		}
	}
	return next, rest
}
