package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ashlar-dev/storage/history"
)

// historyLength is the number of steps of a history.
const historyLength = 150

// A modelRun is a history: one call after the other on a new store, through up to two handles.
type modelRun struct {
	*suite
	draw     *modelDraw
	store    *modelStore
	handles  []*modelHandle
	watches  []*modelWatch
	cursors  []modelCursor
	listings []*modelListing

	numbers   bool         // revisions are read after every change
	points    []modelPoint // after every change, if numbers
	followers []*modelFollower

	step  int
	trace []string
}

func newModelRun(s *suite, seed uint64) *modelRun {
	s = &suite{&target{assertions: s.assertions, h: s.h}}
	s.open()
	m := &modelRun{suite: s, store: newModelStore()}
	m.draw = &modelDraw{Rand: rand.New(rand.NewPCG(seed, historyLength)), store: m.store}
	m.draw.chooseKeys(8)
	m.handles = append(m.handles, newModelHandle(s.b, m.store, s.h.NoOrderAcrossKeys == ""))
	if s.h.OneHandle == "" {
		m.addHandle()
	}
	return m
}

func (m *modelRun) addHandle() {
	m.handles = append(m.handles, newModelHandle(m.another(), m.store, m.h.NoOrderAcrossKeys == ""))
}

func (m *modelRun) handle() *modelHandle { return pick(m.draw, m.handles...) }

// note adds a line to the trace of the history.
func (m *modelRun) note(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf("%3d  "+format, append([]any{m.step}, args...)...))
}

// succeeds demands that a call succeeds. Check is the promise that an error breaks.
func (m *modelRun) succeeds(check, what string, err error) {
	if err != nil {
		failCheck(check, "%s: %v", what, err)
	}
}

// reopen closes one handle or all, and opens others.
func (m *modelRun) reopen() {
	if m.h.OneHandle != "" {
		return
	}
	closed := slices.Clone(m.handles)
	if m.draw.chance(50) {
		closed = closed[:1]
	}
	m.note("close %d handles and open others", len(closed))
	of := func(h *modelHandle) bool { return slices.Contains(closed, h) }
	for _, h := range closed {
		m.closeBackend(h.Backend)
	}
	m.handles = slices.DeleteFunc(m.handles, of)
	m.watches = slices.DeleteFunc(m.watches, func(w *modelWatch) bool { return of(w.handle) })
	m.followers = slices.DeleteFunc(m.followers, func(f *modelFollower) bool { return of(f.handle) })
	m.listings = slices.DeleteFunc(m.listings, func(l *modelListing) bool { return of(l.handle) && m.h.NoHistorian != "" })
	for range closed {
		m.addHandle()
	}
}

// historian returns the history of a handle, nil if the steps need none.
func (m *modelRun) historian(h *modelHandle) history.Historian {
	if !m.numbers {
		return nil
	}
	return m.historianOf(h.Backend)
}

// number reads the revisions of the changes of the last commit.
func (m *modelRun) number() {
	h := m.historian(m.handle())
	if h == nil {
		return
	}
	const check = "revisions rise"
	oldest, newest, err := h.Revisions(m.ctx)
	m.succeeds(check, "Revisions", err)
	last := modelPoint{}
	if len(m.points) > 0 {
		last = m.points[len(m.points)-1]
	}
	changes := m.store.changes[last.changes:]
	if oldest < 1 || newest < oldest || newest < last.revision || len(changes) > 0 && newest == last.revision {
		failCheck(check, "the revisions are %d to %d, the newest was %d before the last %d changes", oldest, newest, last.revision, len(changes))
	}
	for i := range changes {
		c := &changes[i]
		c.after, c.upTo = last.revision, newest
		if c.now == nil {
			continue
		}
		id := c.now.Resource.Id
		scan, err := h.Scan(m.ctx, history.Range{From: id, To: nextKey(id)}, history.ScanOptions{Revision: newest})
		m.succeeds("the past stays", "Scan", err)
		if len(scan.Records) != 1 {
			failCheck("the past stays", "a scan of the key of %s returned %d records", idText(id), len(scan.Records))
		}
		got := scan.Records[0]
		c.now.Modified = got.Modified
		if c.before == nil {
			c.now.Created = got.Modified
		}
		if err := compareRecords(got, *c.now); err != nil || got.Modified <= c.after || got.Modified > c.upTo {
			failCheck(check, "a change between the revisions %d and %d: %v, %s", c.after, c.upTo, err, recordText(got))
		}
		for _, other := range changes[:i] {
			if other.commit == c.commit && other.now != nil && other.now.Modified != got.Modified {
				failCheck("a commit has one revision", "a commit has the revisions %d and %d", other.now.Modified, got.Modified)
			}
		}
	}
	m.points = append(m.points, modelPoint{newest, len(m.store.changes)})
}
