package sqlite

import (
	"sync"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
)

// inbox passes news to one run of the feed: rows that this process's writer added to the log, or a request to poll the
// file. The run publishes the rows without reading them back if they directly follow its position.
//
// Each run has its own inbox, because a run may still be ending when the next one begins.
type inbox struct {
	signal chan struct{} // holds a token if there may be news

	mu            sync.Mutex
	localCommits  []committedBatch
	bytes         int
	pollRequested bool
}

// maxInboxBytes bounds the size of an inbox while the feed is blocked on the file. Beyond it, the feed polls the file
// instead. batchOverhead and rowOverhead are added for each batch and row, which may have few bytes of a resource or
// none.
const (
	maxInboxBytes = 8 << 20
	batchOverhead = 64
	rowOverhead   = 256
)

// committedBatch holds the log rows of a single transaction, between two positions.
type committedBatch struct {
	after, end position
	rows       []row // nil if the rows must be read from the file
}

// row is a row of the log for a write.
type row struct {
	at                     position
	last, creation, writes int64
	key                    driver.Key
	data                   []byte
}

func (in *inbox) add(batches []committedBatch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.pollRequested = in.pollRequested || len(batches) == 0
	for i := range batches {
		in.bytes += batchOverhead
		for j := range batches[i].rows {
			in.bytes += rowOverhead + len(batches[i].rows[j].data)
		}
	}
	if in.localCommits = append(in.localCommits, batches...); in.bytes > maxInboxBytes {
		in.pollRequested, in.localCommits, in.bytes = true, nil, 0
	}
	select {
	case in.signal <- struct{}{}:
	default:
	}
}

// drain empties the inbox.
func (in *inbox) drain() (batches []committedBatch, poll bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	batches, poll = in.localCommits, in.pollRequested
	in.localCommits, in.pollRequested, in.bytes = nil, false, 0
	return batches, poll
}

// eventsAfter returns the events of the batches that directly follow a position, and the position after them. poll
// reports that the log has other rows, which must be read from the file.
func eventsAfter(batches []committedBatch, at position) (events []*event, end position, poll bool) {
	for i := range batches {
		a := &batches[i]
		switch {
		case a.end == at: // a poll has read it
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

// event returns the event that eventOf returns for the row.
func (r *row) event() *event {
	ev := &event{
		Key: r.key, At: r.at, Commit: r.at.tag, Size: len(r.data),
		Revision: revision(r.last), CreateRevision: revision(r.creation), Writes: r.writes,
	}
	ev.Resource, ev.Damage = codec.AdoptOf(r.key, r.data, r.at.version())
	return ev
}
