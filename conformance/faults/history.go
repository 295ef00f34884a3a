package faults

import (
	"fmt"
	"maps"
	"sort"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// roundLog contains the calls and observations of one round.
type roundLog struct {
	full              func() // called when there are enough calls for one round
	mu                sync.Mutex
	calls             []*call
	bookmarks         []bookmark
	probes            []*probe
	waits             []wait // that were long at first sight
	faults            []episode
	compactionReports []compactionReport
	views             []*view
	readings          []reading
	reports           []Violation // violations that need no further evidence
}

// maxRoundCalls is the approximate maximum number of calls in a round; calls in progress may exceed it.
const maxRoundCalls = 40_000

// episode is the time span of a fault.
type episode struct {
	kind       Kind
	begin, end time.Duration
}

// bookmark is a bookmark event that a follower has received.
type bookmark struct {
	follower    string // its name
	requestTime time.Duration
	eventCount  int // events of the round that the follower had seen by then
}

// copy returns a copy of the current log.
func (h *roundLog) copy() *roundLog {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &roundLog{calls: h.calls, bookmarks: h.bookmarks, probes: h.probes, waits: h.waits, faults: h.faults, compactionReports: h.compactionReports, views: h.views, readings: h.readings, reports: h.reports}
}

func (h *roundLog) addCall(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.id = len(h.calls)
	if h.calls = append(h.calls, c); len(h.calls) == maxRoundCalls {
		h.full()
	}
}

// report records a violation that needs no further evidence.
func (h *roundLog) report(v Violation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reports = append(h.reports, v)
}

// probe is a watch that a client opened for a short time.
type probe struct {
	client  string
	handle  int
	process int    // number of the handle's process when the watch was opened
	from    origin // with the list being the watch's own snapshot, for one without a cursor
	events  []event
}

// maxProbeEvents is the maximum number of events that a probe reads.
const maxProbeEvents = 12

// origin is a position in the history that a client or follower shares with others.
type origin struct {
	cursor   string
	follower string         // name of the follower; "" for a list
	after    map[string]int // by key: number of events of the round that the follower had seen
	list     *call          // the list that returned it, if any
	newest   lowerBound
}

func (o origin) String() string {
	if o.list != nil {
		return fmt.Sprintf("the %s of %s", o.list.kind, o.list.client)
	}
	return fmt.Sprintf("a cursor of %s", o.follower)
}

// lowerBound bounds a position in the history from below: by a time and by a write.
type lowerBound struct {
	since time.Duration
	write string // its name; "" if there is none in this round
}

// view is a part of the store at a revision.
type view struct {
	call     *call
	revision int64
	keys     []string // that were looked at
	records  map[string]record
}

// record is the stored state under a key with its revisions; the zero value means that nothing is stored.
type record struct {
	state
	createRevision, modRevision, writes int64
}

func (r record) String() string {
	if r == (record{}) {
		return "nothing"
	}
	return fmt.Sprintf("%v (created %d, modified %d, writes %d)", r.state, r.createRevision, r.modRevision, r.writes)
}

// recordOf converts a record of the store. It returns the zero value for nil.
func recordOf(r *history.Record) record {
	if r == nil {
		return record{}
	}
	return record{stateOf(r.Resource), r.Created, r.Modified, r.Writes}
}

func stateOf(res *resourcepb.Resource) state {
	return state{res.GetId().GetUid(), res.GetVersion()}
}

// pinnedRevision is the revision of a scan, with a moment when it existed already.
type pinnedRevision struct {
	revision int64
	since    time.Duration
}

// reading is an answer with a revision that must have been the newest at some moment of its call.
type reading struct {
	call     *call
	revision int64
	oldest   int64 // the oldest revision in the answer; 0: none
}

// wait is the duration of a call, or of a part of it.
type wait struct {
	call                *call
	begin, end, timeout time.Duration
}

// compactionReport is the error of a call that failed because history was compacted.
type compactionReport struct {
	by, action string
	handle     int
	from       lowerBound
	at         time.Duration
	err        error
}

// followLog contains the changes of a round that a history.Follower reported after a revision.
type followLog struct {
	name   string
	handle int

	base          map[string]record // the states at the first revision; nil if they are not known
	from          int64             // the log begins after this revision
	at            int64             // the log is complete up to this revision
	changes       []change
	hitCompaction bool // history was compacted under it
	incomplete    bool // it does not go up to until
}

// covers reports whether the state at a revision is known.
func (c *followLog) covers(revision int64) bool {
	return c.base != nil && c.from <= revision && revision <= c.at
}

// checkStates compares each change with the change before it of the same key: its previous state and its revisions.
func (c *followLog) checkStates() (found []Violation) {
	stored, known := map[string]record{}, map[string]bool{}
	maps.Copy(stored, c.base)
	for _, ch := range c.changes {
		wrong := ""
		want := record{ch.now.state, ch.revision, ch.revision, 1}
		if ch.before != (record{}) {
			want.createRevision, want.writes = ch.before.createRevision, ch.before.writes+1
		}
		switch {
		case (c.base != nil || known[ch.key]) && ch.before != stored[ch.key]:
			wrong = fmt.Sprintf("its previous state is %v, but the stored state was %v", ch.before, stored[ch.key])
		case ch.now != (record{}) && ch.now != want:
			wrong = fmt.Sprintf("its revisions differ from the expected %v", want)
		case ch.now != (record{}) && ch.before != (record{}) && ch.now.uid != ch.before.uid:
			wrong = "the uid has changed"
		}
		if wrong != "" {
			found = append(found, Violation{"followers report the previous state", fmt.Sprintf("%s reported %v: %s", c.name, ch, wrong)})
		}
		stored[ch.key], known[ch.key] = ch.now, true
	}
	return found
}

// changesBetween returns the changes between two revisions, sorted, because changes of one commit may come in any order.
func (c *followLog) changesBetween(after, until int64) (all []change) {
	for _, ch := range c.changes {
		if ch.revision > after && ch.revision <= until {
			all = append(all, ch)
		}
	}
	sort.SliceStable(all, func(i, j int) bool {
		return all[i].revision < all[j].revision || all[i].revision == all[j].revision && all[i].key < all[j].key
	})
	return all
}

// change is a change that a follower reported.
type change struct {
	key         string
	name        string // of the write
	revision    int64
	now, before record
	group       int // changes of one commit have the same
	at          time.Duration
}

func (c change) equal(other change) bool {
	return c.key == other.key && c.revision == other.revision && c.now == other.now && c.before == other.before
}

// matches reports whether the change and the event belong to the same write.
func (c change) matches(ev event) bool {
	if ev.isDelete {
		return c.now == (record{}) && c.before.state == ev.now
	}
	return c.now.state == ev.now
}

func (c change) String() string {
	return fmt.Sprintf("[%s] revision %d: %s is %s, in place of %s", formatTime(c.at), c.revision, shortKey(c.key), c.now, c.before)
}

func add[T any](h *roundLog, list *[]T, v T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*list = append(*list, v)
}

func (h *roundLog) addFault(e episode)               { add(h, &h.faults, e) }
func (h *roundLog) addBookmark(b bookmark)           { add(h, &h.bookmarks, b) }
func (h *roundLog) addCompaction(g compactionReport) { add(h, &h.compactionReports, g) }
func (h *roundLog) addView(v *view)                  { add(h, &h.views, v) }
func (h *roundLog) addReading(n reading)             { add(h, &h.readings, n) }
