package sqlite

import (
	"sync"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
)

// inbox is where one run of the feed is told that there is something new: look in the file, or, for rows that this process's writer
// has added to the log, here they are. Those it takes as they are instead of reading them back, if they come next.
//
// Each run has an inbox of its own, because one may still be ending when the next begins.
type inbox struct {
	signal chan struct{} // holds a token when there may be something

	mu            sync.Mutex
	localCommits  []committedBatch
	bytes         int
	pollRequested bool
}

// maxInboxBytes bounds what waits for a feed that waits for the file. What is beyond, a look reads. An addition and a row count for
// something also where they have few bytes of a resource, or none.
const (
	maxInboxBytes = 8 << 20
	batchOverhead = 64
	rowOverhead   = 256
)

// committedBatch is what one transaction has added to the log: everything between two rows.
type committedBatch struct {
	after, end position
	rows       []row // nil: only the file has them all
}

// row is a row of the log that tells of a write.
type row struct {
	at                     position
	createRevision, writes int64
	key                    driver.Key
	data                   []byte
}

func (in *inbox) add(own []committedBatch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.pollRequested = in.pollRequested || len(own) == 0
	for i := range own {
		in.bytes += batchOverhead
		for j := range own[i].rows {
			in.bytes += rowOverhead + len(own[i].rows[j].data)
		}
	}
	if in.localCommits = append(in.localCommits, own...); in.bytes > maxInboxBytes {
		in.pollRequested, in.localCommits, in.bytes = true, nil, 0
	}
	select {
	case in.signal <- struct{}{}:
	default: // it is ringing already
	}
}

// drain empties the inbox.
func (in *inbox) drain() (own []committedBatch, look bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	own, look = in.localCommits, in.pollRequested
	in.localCommits, in.pollRequested, in.bytes = nil, false, 0
	return own, look
}

// eventsAfter returns the events of additions that come next after a position without a gap, and the position after them; look says
// that the log has other rows, which the file tells.
func eventsAfter(own []committedBatch, at position) (events []*event, end position, look bool) {
	for i := range own {
		a := &own[i]
		switch {
		case a.end == at: // a look has read it
		case a.after != at || a.rows == nil:
			return events, at, true
		default:
			for j := range a.rows {
				events = append(events, a.rows[j].event())
			}
			at = a.end
		}
	}
	return events, at, false
}

// event is what eventOf makes of the row.
func (r *row) event() *event {
	ev := &event{
		Key: r.key, At: r.at, Commit: r.at.tag, Size: len(r.data),
		Revision: r.at.revision(), CreateRevision: revision(r.createRevision), Writes: r.writes,
	}
	ev.Resource, ev.Damage = codec.AdoptOf(r.key, r.data, r.at.version())
	return ev
}
