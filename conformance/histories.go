package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// historyCases play random sequences of calls on a new store and compare every answer with a model, which is a map and a list of
// changes. The seeds are fixed. If a history fails, steps are removed as long as it still fails.
var historyCases = topic{"Histories", []testCase{
	{name: "Calls", run: func(s *suite) { historyKind{callSteps, false}.play(s) }},
	{name: "Watches", run: func(s *suite) { historyKind{watchSteps, false}.play(s) }},
	{name: "Past", needs: needHistorian, run: func(s *suite) { historyKind{revisionSteps, true}.play(s) }},
}}

// historyCount is the number of seeds, historyLength the number of steps of a history.
const historyCount, historyLength = 6, 150

// A historyStep is a kind of step, and its relative frequency.
type historyStep struct {
	weight int
	run    func(m *modelRun)
}

var callSteps = []historyStep{
	{6, (*modelRun).writeOne}, {3, (*modelRun).deleteOne}, {5, (*modelRun).commitSome}, {4, (*modelRun).readOne}, {4, (*modelRun).listSome},
	{3, (*modelRun).listPages}, {3, (*modelRun).readOwners}, {1, (*modelRun).reopen},
}

var watchSteps = []historyStep{
	{5, (*modelRun).writeOne}, {3, (*modelRun).deleteOne}, {5, (*modelRun).commitSome}, {2, (*modelRun).readOne}, {1, (*modelRun).listSome},
	{2, (*modelRun).listPages}, {2, (*modelRun).readOwners}, {1, (*modelRun).reopen}, {3, (*modelRun).openWatch}, {4, (*modelRun).resumeWatch},
	{8, (*modelRun).readWatch}, {3, (*modelRun).requestBookmarks},
}

var revisionSteps = []historyStep{
	{4, (*modelRun).writeOne}, {2, (*modelRun).deleteOne}, {4, (*modelRun).commitSome}, {8, (*modelRun).swapOne}, {1, (*modelRun).reopen},
	{4, (*modelRun).scanSome}, {4, (*modelRun).listPages}, {3, (*modelRun).follow}, {4, (*modelRun).readFollower},
}

// A historyKind contains the steps of a case. If numbers is set, revisions are read after every change.
type historyKind struct {
	steps   []historyStep
	numbers bool
}

// play plays histories with consecutive seeds, beginning with 1.
func (k historyKind) play(s *suite) {
	for seed := range uint64(max(2, s.scale(historyCount))) {
		m, found := k.playSeed(s, seed+1, nil)
		if found == nil {
			continue
		}
		m, found = k.shorten(s, seed+1, m, found)
		s.Fatalf("%v\nThis is history %d, without the steps that it does not need:\n%s", found, seed+1, strings.Join(m.trace, "\n"))
	}
}

// shorten removes steps of a failing history, first many and then few at once, as long as it fails in the same way.
func (k historyKind) shorten(s *suite, seed uint64, m *modelRun, found *violation) (*modelRun, *violation) {
	end := time.Now().Add(min(10*time.Second, s.timeout))
	skipped := make([]bool, historyLength)
	for size := m.step / 2; size > 0; size /= 2 {
		for i := m.step - size; i >= 0 && time.Now().Before(end); i -= size {
			fewer := slices.Clone(skipped)
			for j := range size {
				fewer[i+j] = true
			}
			if shorter, again := k.playSeed(s, seed, fewer); again != nil && again.check == found.check {
				m, found, skipped = shorter, again, fewer
			}
		}
	}
	return m, found
}

// playSeed plays the history of a seed without the skipped steps.
func (k historyKind) playSeed(s *suite, seed uint64, skipped []bool) (m *modelRun, found *violation) {
	m = newModelRun(s, seed)
	defer func() {
		for _, w := range m.watches {
			w.Close()
		}
		for _, f := range m.followers {
			f.Close()
		}
		for _, h := range m.handles {
			m.closeBackend(h.Backend)
		}
		switch v := recover().(type) {
		case nil:
		case *violation:
			found = v
		default:
			panic(v)
		}
	}()
	var kinds []func(*modelRun)
	for _, step := range k.steps {
		kinds = append(kinds, slices.Repeat([]func(*modelRun){step.run}, step.weight)...)
	}
	m.numbers = k.numbers
	m.number()
	for ; m.step < historyLength; m.step++ {
		m.draw.Rand = rand.New(rand.NewPCG(seed, uint64(m.step)))
		if step := pick(m.draw, kinds...); skipped == nil || !skipped[m.step] {
			step(m)
		}
	}
	m.finish()
	return m, nil
}

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

func (m *modelRun) writeOne() {
	op := m.draw.write()
	m.note("%s", operationText(op))
	got, err := m.handle().WriteCAS(m.ctx, op.Write)
	m.checkOutcome(op, got, err)
}

func (m *modelRun) deleteOne() {
	op := m.draw.delete()
	m.note("%s", operationText(op))
	m.checkOutcome(op, nil, m.handle().DeleteCAS(m.ctx, op.Delete, op.Version))
}

func (m *modelRun) checkOutcome(op storage.Op, got *resourcepb.Resource, err error) {
	want := m.store.decide(op)
	switch {
	case !errors.Is(err, want) || want != nil && got != nil:
		failCheck("decision tables", "%s: got error %v, want %v; stored is %s", operationText(op), quoteError(err), quoteError(want),
			shortText(resourceOf(m.store.now[keyOf(operationID(op))])))
	case err != nil:
		m.checkList(m.handle(), allFilter, "refused changes do not happen")
	default:
		m.store.commit([]storage.Op{op}, []*resourcepb.Resource{got})
		m.number()
		m.checkKey(m.handle(), operationID(op))
	}
}

// checkKey demands that a strong read shows the last acknowledged change of a key.
func (m *modelRun) checkKey(h *modelHandle, id *resourcepb.ID) {
	now := resourceOf(m.store.now[keyOf(id)])
	id = withGroupVersion(withUid(id, ""), now.GetId().GetType().GetGroupVersion())
	if got, err := h.Read(m.ctx, strong, id); !readMatches(now, id, got, err) {
		failCheck("acknowledged changes stay", "Read of %s: got %s, error %v, stored is %s", idText(id), shortText(got), quoteError(err), shortText(now))
	}
}

func (m *modelRun) commitSome() {
	transactor, ok := storage.As[storage.Transactor](m.handle().Backend)
	if !ok {
		return
	}
	ops := m.draw.operations()
	m.note("a transaction:")
	for _, op := range ops {
		m.note("  %s", operationText(op))
	}
	results, err := transactor.Commit(m.ctx, ops)
	failing := slices.IndexFunc(ops, func(op storage.Op) bool { return m.store.decide(op) != nil })
	if failing >= 0 {
		want, opError := m.store.decide(ops[failing]), (*storage.OpError)(nil)
		if !errors.As(err, &opError) || opError.Index != failing || !errors.Is(opError.Err, want) || results != nil {
			failCheck("transactions are atomic", "Commit: got error %v, want %v of operation %d", quoteError(err), want, failing)
		}
		m.checkList(m.handle(), allFilter, "transactions are atomic")
		return
	}
	if err != nil || len(results) != len(ops) || len(ops) == 0 && results != nil {
		failCheck("transactions are atomic", "Commit: got %d results for %d operations, error %v", len(results), len(ops), quoteError(err))
	}
	for i, op := range ops {
		if (op.Write != nil) != (results[i] != nil) {
			failCheck("transactions are atomic", "Commit: result %d is %v", i, results[i])
		}
	}
	m.store.commit(ops, results)
	m.number()
}

func (m *modelRun) readOne() {
	m.read(m.handle(), m.draw.id(), pick(m.draw, consistencies...))
}

func (m *modelRun) read(h *modelHandle, id *resourcepb.ID, consistency storage.ReadConsistency) {
	now := resourceOf(m.store.now[keyOf(id)])
	id.Uid = pick(m.draw, "", now.GetId().GetUid(), now.GetId().GetUid(), "another-uid")
	if now != nil && m.draw.chance(50) {
		id.Type.GroupVersion = now.Id.Type.GroupVersion
	}
	m.note("%v read of %s", consistency, idText(id))
	got, err := h.Read(m.ctx, consistency, id)
	if consistency == eventual {
		h.checkRead(id, got, err)
		return
	}
	if readMatches(now, id, got, err) {
		return
	}
	check := "reads show written states"
	if now != nil && now.Id.Type.GroupVersion != id.Type.GroupVersion {
		check = "group versions"
	}
	failCheck(check, "Read of %s: got %s, error %v, stored is %s", idText(id), shortText(got), quoteError(err), shortText(now))
}

func (m *modelRun) listSome() {
	h, f := m.handle(), m.draw.filter()
	if pick(m.draw, consistencies...) == strong {
		m.note("strong list of %v", f)
		m.checkList(h, f, "reads show written states")
		return
	}
	m.note("eventual list of %v", f)
	m.checkEventualList(h, f)
}

// checkList demands that a strong list shows the content of the model. Check is the promise that a difference breaks.
func (m *modelRun) checkList(h *modelHandle, f filter, check string) {
	got, err := h.List(m.ctx, strong, f.typ, f.tenancy, f.prefix)
	m.succeeds("reads show written states", "List", err)
	if len(got) == 0 && got != nil {
		failCheck("empty results are nil", "List of %v returned an empty slice that is not nil", f)
	}
	want := f.of(m.store.resources())
	if err = compareLists(got, want); err == nil {
		return
	}
	inOrder(got)
	if compareLists(got, want) == nil {
		check = "order of lists"
	} else if f.String() != allFilter.String() {
		m.checkList(h, allFilter, check)
		check = "filters"
	}
	failCheck(check, "List of %v: %v", f, err)
}

func (m *modelRun) checkEventualList(h *modelHandle, f filter) {
	got, err := h.List(m.ctx, eventual, f.typ, f.tenancy, f.prefix)
	m.succeeds("reads show written states", "List", err)
	m.checkEventualResources(h, f, got)
}

func (m *modelRun) checkEventualResources(h *modelHandle, f filter, got []*resourcepb.Resource) {
	if len(got) == 0 && got != nil {
		failCheck("empty results are nil", "an eventual List of %v returned an empty slice that is not nil", f)
	}
	byKey := make(map[string]*resourcepb.Resource)
	for i, res := range got {
		byKey[keyOf(res.Id)] = res
		if i > 0 && keyOf(got[i-1].Id) >= keyOf(res.Id) {
			failCheck("order of lists", "an eventual List of %v shows %s after %s", f, shortText(res), shortText(got[i-1]))
		}
		if !f.selects(res.Id) {
			failCheck("filters", "an eventual List of %v shows %s", f, shortText(res))
		}
	}
	for _, id := range m.draw.ids {
		if res := byKey[keyOf(id)]; f.selects(id) {
			if v := h.check(keyOf(id), 0, func(stored *resourcepb.Resource) bool { return sameResource(stored, res) }); v != nil {
				failCheck(v.check, "an eventual List of %v shows %s: %s", f, shortText(res), v.text)
			}
		}
	}
}

// readOwners compares OwnerReferences, an eventual read, with the owners of all keys.
func (m *modelRun) readOwners() {
	owner := m.draw.owner()
	m.note("references of owner %s", idText(owner))
	m.checkOwners(m.handle(), owner)
}

func (m *modelRun) checkOwners(h *modelHandle, owner *resourcepb.ID) {
	got, err := h.OwnerReferences(m.ctx, owner)
	m.succeeds("owner references are true", "OwnerReferences", err)
	if len(got) == 0 && got != nil {
		failCheck("empty results are nil", "OwnerReferences returned an empty slice that is not nil")
	}
	byKey := make(map[string]*resourcepb.ID)
	for i, id := range got {
		if byKey[keyOf(id)] = id; i > 0 && keyOf(got[i-1]) >= keyOf(id) {
			failCheck("owner references are true", "OwnerReferences of %s returned %s after %s", idText(owner), idText(id), idText(got[i-1]))
		}
	}
	for _, id := range m.draw.ids {
		key := keyOf(id)
		ref := byKey[key]
		v := h.check(key, h.references[key], func(stored *resourcepb.Resource) bool {
			return owns(owner, stored) == (ref != nil) && (ref == nil || proto.Equal(ref, stored.Id))
		})
		if v != nil {
			failCheck("owner references are true", "OwnerReferences of %s, %d references: %s", idText(owner), len(got), v.text)
		}
	}
}

// listPages starts a listing, or reads a page after any token of an existing one.
func (m *modelRun) listPages() {
	h := m.handle()
	pager, ok := storage.As[storage.Pager](h.Backend)
	if !ok {
		return
	}
	limit := pick(m.draw, 1, 1, 2, 3, 3, 1000, 0)
	if m.draw.chance(20) {
		f := m.draw.filter()
		m.note("eventual page of %v", f)
		page, err := pager.ListPage(m.ctx, f.typ, f.tenancy, f.prefix, storage.ListOptions{Consistency: eventual, Limit: 1000})
		m.succeeds("pages", "ListPage", err)
		if page.Continue == "" {
			m.checkEventualResources(h, f, slices.Clip(page.Resources))
		}
		return
	}
	if len(m.listings) == 0 || m.draw.chance(35) {
		m.startListing(h, pager, limit)
		return
	}
	l := pick(m.draw, m.listings...)
	if m.h.NoHistorian != "" { // without history, a token may belong to its handle
		pager, _ = storage.As[storage.Pager](l.handle.Backend)
	}
	if len(l.tokens) == 0 {
		return
	}
	token := pick(m.draw, l.tokens...)
	opts := storage.ListOptions{Consistency: strong, Limit: limit, Continue: token.text}
	if f := m.draw.filter(); m.draw.chance(20) && f.String() != l.filter.String() {
		m.note("page of %v with a token of %v", f, l.filter)
		if _, err := pager.ListPage(m.ctx, f.typ, f.tenancy, f.prefix, opts); !errors.Is(err, storage.ErrInvalid) {
			failCheck("tokens belong to a filter", "ListPage of %v with the token of %v: got error %v, want ErrInvalid", f, l.filter, quoteError(err))
		}
		return
	}
	if other := pick(m.draw, append(m.points, modelPoint{})...).revision; l.revision != 0 && other != 0 && other != l.revision && m.draw.chance(20) {
		m.note("page at revision %d with a token of revision %d", other, l.revision)
		opts.Revision = other
		if _, err := pager.ListPage(m.ctx, l.filter.typ, l.filter.tenancy, l.filter.prefix, opts); !errors.Is(err, storage.ErrInvalid) {
			failCheck("the past stays", "ListPage at revision %d with the token of revision %d: got error %v, want ErrInvalid", other, l.revision, quoteError(err))
		}
		return
	}
	m.note("page of %v after %d resources, limit %d", l.filter, len(token.previousPages), limit)
	page, err := pager.ListPage(m.ctx, l.filter.typ, l.filter.tenancy, l.filter.prefix, opts)
	m.succeeds("pages", "ListPage", err)
	l.accept(token, limit, page)
}

func (m *modelRun) startListing(h *modelHandle, pager storage.Pager, limit int) {
	l := &modelListing{handle: h, filter: m.draw.broadFilter(), start: len(m.store.changes), oneCut: m.h.ListIsNoSnapshot == ""}
	l.want = l.filter.of(m.store.resources())
	if len(m.points) > 0 && m.draw.chance(70) {
		p := pick(m.draw, m.points...)
		l.revision, l.start, l.want = p.revision, p.changes, nil
		for _, r := range m.store.at(p.changes) {
			l.want = append(l.want, r.Resource)
		}
		l.want = l.filter.of(l.want)
	}
	m.note("first page of %v at revision %d, limit %d", l.filter, l.revision, limit)
	opts := storage.ListOptions{Consistency: strong, Limit: limit, Revision: l.revision}
	page, err := pager.ListPage(m.ctx, l.filter.typ, l.filter.tenancy, l.filter.prefix, opts)
	m.succeeds("pages", "ListPage", err)
	l.cursor = page.Cursor
	if (l.cursor == "") != (m.h.NoResumer != "") {
		failCheck("pages", "a page has cursor %q", l.cursor)
	}
	l.accept(modelToken{}, limit, page)
	m.listings = append(m.listings, l)
	if l.cursor != "" {
		m.addCursor(l.position())
	}
}

func (m *modelRun) addCursor(c modelCursor) {
	if len(m.cursors) < 12 {
		m.cursors = append(m.cursors, c)
		return
	}
	m.cursors[m.draw.IntN(len(m.cursors))] = c
}

// openWatch opens a watch. The context of the call ends before the watch is read.
func (m *modelRun) openWatch() {
	h, f := m.handle(), m.draw.filter()
	m.note("watch %d: %v", len(m.watches), f)
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	w, err := h.WatchList(ctx, f.typ, f.tenancy, f.prefix)
	m.succeeds("snapshots of watches", "WatchList", err)
	statuses := slices.Repeat([]changeStatus{statusBefore}, len(m.store.changes))
	m.addWatch(&modelWatch{Watch: w, handle: h, h: m.h, filter: f, inSnapshot: true, snapshot: f.of(m.store.resources()), statuses: statuses})
}

// addWatch adds a watch, in place of an old one if there are many.
func (m *modelRun) addWatch(w *modelWatch) {
	if m.h.NoHistorian == "" && m.draw.chance(50) {
		recaller, ok := w.Watch.(history.Recaller)
		if !ok {
			failCheck("watches report the previous state", "a watch of a history.Historian, a %T, is no history.Recaller", w.Watch)
		}
		m.note("recall the previous states")
		recaller.Recall()
		w.recalls = true
	}
	if m.watches = append(m.watches, w); len(m.watches) > 5 {
		m.watches[0].Close()
		m.watches = m.watches[1:]
	}
}

// resumeWatch opens a watch from any cursor, usually with another filter and through another handle.
func (m *modelRun) resumeWatch() {
	h, f := m.handle(), m.draw.filter()
	resumer, ok := storage.As[storage.Resumer](h.Backend)
	if !ok || len(m.cursors) == 0 {
		return
	}
	c := pick(m.draw, m.cursors...)
	m.note("watch %d: %v, from cursor %q", len(m.watches), f, c.text)
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	w, err := resumer.WatchFrom(ctx, f.typ, f.tenancy, f.prefix, c.text)
	m.succeeds("cursors are exact", "WatchFrom", err)
	if got := w.Cursor(); got != c.text {
		failCheck("cursors are exact", "a watch from cursor %q says that it is at %q before its first event", c.text, got)
	}
	resumed := &modelWatch{Watch: w, handle: h, h: m.h, filter: f}
	for i := range m.store.changes {
		status := statusAfter
		if i < len(c.statuses) {
			status = c.statuses[i]
		}
		if status == statusAfter && !f.selects(subject(m.store.changes[i].event).Id) {
			status = statusOpen
		}
		resumed.statuses = append(resumed.statuses, status)
	}
	m.addWatch(resumed)
}

// readWatch reads some events of a watch, or all.
func (m *modelRun) readWatch() {
	if len(m.watches) == 0 {
		return
	}
	i := m.draw.IntN(len(m.watches))
	for n := pick(m.draw, 1, 2, 5, 100); n > 0 && m.watches[i].owes(); n-- {
		m.readEvent(i, m.watches[i])
	}
}

func (m *modelRun) readEvent(i int, w *modelWatch) {
	before := w.Cursor()
	ev, err := m.nextOrBookmark(w)
	if err != nil {
		check := "watches are complete and ordered"
		switch {
		case w.inSnapshot:
			check = "snapshots of watches"
		case !w.owed(len(m.store.changes)):
			check = "bookmarks come"
		}
		failCheck(check, "Next of watch %d, of %v: %v", i, w.filter, err)
	}
	m.note("watch %d returns %s", i, eventText(ev))
	w.accept(ev)
	if res := subject(ev); res != nil && !w.inSnapshot && m.draw.chance(30) {
		m.read(w.handle, clone(res.Id), eventual)
	}
	if res := ev.GetDelete().GetResource(); res != nil { // as a garbage collector does
		m.checkOwners(w.handle, res.Id)
	}
	switch resumer, ok := storage.As[storage.Resumer](w.handle.Backend); {
	case !ok:
	case w.inSnapshot && m.draw.chance(20):
		if _, err := resumer.WatchFrom(m.ctx, w.filter.typ, w.filter.tenancy, w.filter.prefix, w.Cursor()); !errors.Is(err, storage.ErrInvalid) {
			failCheck("cursors are exact", "WatchFrom a cursor inside a snapshot, %q: got error %v, want ErrInvalid", w.Cursor(), quoteError(err))
		}
	case !w.inSnapshot:
		if subject(ev) != nil && w.Cursor() == before {
			failCheck("cursors are exact", "the cursor after %s equals the previous event's cursor, %q", eventText(ev), before)
		}
		m.addCursor(w.cursor())
	}
}

// requestBookmarks requests bookmarks of a watch, and usually reads up to the last one.
func (m *modelRun) requestBookmarks() {
	if len(m.watches) == 0 || m.h.NoBookmarker != "" {
		return
	}
	i := m.draw.IntN(len(m.watches))
	for range pick(m.draw, 1, 1, 1, 1, 2, 3) {
		m.requestBookmark(i)
	}
	if m.draw.chance(75) {
		m.readAll(i)
	}
}

func (m *modelRun) requestBookmark(i int) {
	m.note("watch %d: request a bookmark", i)
	w := m.watches[i]
	m.succeeds("bookmarks come", "Bookmark", requestBookmark(m.suite, w.Watch))
	w.requests, w.allowance = append(w.requests, len(m.store.changes)), w.allowance+1
}

// readAll reads a watch while it has outstanding events.
func (m *modelRun) readAll(i int) {
	for m.watches[i].owes() {
		m.readEvent(i, m.watches[i])
	}
}

// finish reads everything once more, through every handle, and all watches to their end. A last write of each key follows any
// superfluous event.
func (m *modelRun) finish() {
	m.draw.Rand = rand.New(rand.NewPCG(0, 0))
	for _, id := range m.draw.ids {
		if m.draw.chance(70) {
			res := newResource(withUid(id, m.draw.newUid()))
			if now := m.store.now[keyOf(id)]; now != nil {
				res = withNewData(now.Resource)
			}
			op := storage.Op{Write: res}
			m.note("%s", operationText(op))
			got, err := m.handle().WriteCAS(m.ctx, res)
			m.checkOutcome(op, got, err)
		}
	}
	for i := range m.watches {
		if m.h.NoBookmarker == "" {
			m.requestBookmark(i)
		}
		m.readAll(i)
	}
	for _, f := range m.followers {
		m.followToNewest(f)
	}
	for _, h := range m.handles {
		m.checkList(h, allFilter, "reads show written states")
		for _, id := range m.draw.ids {
			m.checkKey(h, id)
		}
		m.catchUp(h)
	}
}

// catchUp waits until eventual reads show the present.
func (m *modelRun) catchUp(h *modelHandle) {
	err := m.poll(func() error {
		got, err := h.List(m.ctx, eventual, anything, anywhere, "")
		if err == nil {
			err = compareLists(got, allFilter.of(m.store.resources()))
		}
		return err
	})
	if err != nil {
		failCheck("eventual reads catch up", "an eventual List: %v", err)
	}
	for range 3 {
		owner := m.draw.owner()
		err := m.poll(func() error {
			got, err := h.OwnerReferences(m.ctx, owner)
			var want []*resourcepb.ID
			for _, res := range allFilter.of(m.store.resources()) {
				if owns(owner, res) {
					want = append(want, res.Id)
				}
			}
			if err == nil {
				err = compareIDs(got, want)
			}
			return err
		})
		if err != nil {
			failCheck("owner references are true", "OwnerReferences of %s: %v", idText(owner), err)
		}
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
	}
	m.points = append(m.points, modelPoint{newest, len(m.store.changes)})
}

// swapOne swaps at the stored revision or at a different revision.
func (m *modelRun) swapOne() {
	swap, h := m.draw.swap(m.points), m.handle()
	op := storage.Op{Write: swap.Write, Delete: swap.Delete}
	m.note("swap at revision %d: %s", swap.Expect, operationText(op))
	key := keyOf(operationID(op))
	before := m.store.now[key]
	got, err := m.historian(h).Swap(m.ctx, swap)
	const check = "swaps compare revisions"
	switch {
	case before != nil && swap.Write != nil && swap.Expect == before.Modified && swap.Write.Id.Uid != before.Resource.Id.Uid:
		if !errors.Is(err, storage.ErrWrongUid) {
			failCheck(check, "a swap with another uid: got error %v, want ErrWrongUid", quoteError(err))
		}
		return
	case err != nil:
		failCheck(check, "Swap: %v", err)
	}
	right := before == nil && swap.Expect == 0 || before != nil && swap.Expect == before.Modified
	if got.Done != right || got.Revision < 1 {
		failCheck(check, "a swap that expects revision %d: done is %v at revision %d, stored is %v", swap.Expect, got.Done, got.Revision, before)
	}
	want := before
	switch {
	case !right || before == nil && swap.Delete != nil:
		if before != nil && got.Revision < before.Modified {
			failCheck(check, "the answer to a swap is of revision %d, the resource of %d", got.Revision, before.Modified)
		}
	default:
		if swap.Delete != nil {
			op.Delete = before.Resource.Id
		} else if got.Stored == nil {
			failCheck(check, "a swap that writes returned no record")
		}
		m.store.commit([]storage.Op{op}, []*resourcepb.Resource{resourceOf(got.Stored)})
		m.number()
		c := m.store.changes[len(m.store.changes)-1]
		if got.Revision <= c.after || got.Revision > c.upTo || c.now != nil && got.Revision != c.now.Modified {
			failCheck("revisions rise", "a swap between the revisions %d and %d has %d", c.after, c.upTo, got.Revision)
		}
		if c.now != nil {
			want = c.now
		}
	}
	if (got.Stored == nil) != (want == nil) {
		failCheck(check, "Swap returned the record %v, want %v", got.Stored, want)
	}
	if want != nil {
		if err := compareRecords(*got.Stored, *want); err != nil {
			failCheck(check, "the record that Swap returned: %v", err)
		}
	}
	m.checkKey(m.handle(), operationID(op))
}

// scanSome reads a span at a revision to its end.
func (m *modelRun) scanSome() {
	p, span := pick(m.draw, m.points...), m.draw.keyRange()
	opts := history.ScanOptions{Revision: p.revision, Limit: m.draw.IntN(4), KeysOnly: m.draw.chance(20), Count: m.draw.chance(50)}
	if m.draw.chance(15) {
		opts.Revision, p.changes = 0, len(m.store.changes)
	}
	m.note("scan of %q to %q at revision %d, limit %d", keyOf(span.From), keyOf(span.To), opts.Revision, opts.Limit)
	want := m.store.scan(span, p.changes)
	for more := true; more; {
		scan, err := m.historian(m.handle()).Scan(m.ctx, span, opts)
		m.succeeds("the past stays", "Scan", err)
		want = checkScan(scan, opts, want)
		more, span, opts.Revision = scan.More, scan.Rest, scan.Revision
	}
}

// follow follows a span from a revision on.
func (m *modelRun) follow() {
	h, p, span := m.handle(), pick(m.draw, m.points...), m.draw.keyRange()
	if m.draw.chance(50) {
		span = history.Range{}
	}
	m.note("follower %d: %q to %q after revision %d", len(m.followers), keyOf(span.From), keyOf(span.To), p.revision)
	f, err := m.historian(h).Follow(m.ctx, span, p.revision)
	m.succeeds("followers report every change once", "Follow", err)
	m.followers = append(m.followers, &modelFollower{f, h, span, p.changes, p.revision})
	if len(m.followers) > 4 {
		m.followers[0].Close()
		m.followers = m.followers[1:]
	}
}

func (m *modelRun) readFollower() {
	if len(m.followers) > 0 {
		m.followToNewest(pick(m.draw, m.followers...))
	}
}

// followToNewest reads a follower up to the newest change.
func (m *modelRun) followToNewest(f *modelFollower) {
	const check = "followers report every change once"
	m.note("a follower after revision %d: read to the newest", f.revision)
	m.succeeds(check, "Bookmark", f.Bookmark(m.ctx))
	for {
		ctx, cancel := m.timeoutContext()
		changes, revision, err := f.Next(ctx)
		cancel()
		m.succeeds(check, "Next of a follower", err)
		f.accept(changes, revision)
		if len(changes) > 0 {
			continue
		}
		if missing := f.nextCommit(); len(missing) > 0 || revision < m.points[len(m.points)-1].revision {
			failCheck(check, "a follower is at revision %d of %d without %d changes", revision, m.points[len(m.points)-1].revision, len(missing))
		}
		return
	}
}
