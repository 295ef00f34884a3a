package conformance

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The reference computes the state at a revision from its log. Revision 1 is the empty store, and each change raises the
// revision.

var _ history.Historian = (*handle)(nil)

func (h *handle) Revisions(ctx context.Context) (oldest, newest int64, err error) {
	if err := h.enter(ctx); err != nil {
		return 0, 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	oldest, newest = h.floor(), h.revision
	if h.sometimes("the newest revision is an older one", 3) {
		newest = max(oldest, newest-20)
	}
	return oldest, newest, nil
}

func (s *store) floor() int64 { return max(s.compacted, 1) }

// reserve takes the revisions of a transaction before it is decided. Only with a bug do other callers see later revisions first.
func (s *store) reserve(n int) {
	first := s.revision
	s.revision += int64(n)
	s.pause()
	s.reserved = first
}

// nextRevision returns the revision of a change.
func (s *store) nextRevision() int64 {
	if s.reserved != 0 {
		s.reserved++
		return s.reserved
	}
	if !s.sometimes("a revision is used twice", 100) {
		s.revision++
	}
	return s.revision
}

// revisionAt returns the revision of the store at a position in the log.
func (s *store) revisionAt(position int) int64 {
	if position = min(position, len(s.log)); position > 0 {
		return s.log[position-1].revision
	}
	return 1
}

// positionAfter returns the position of the first change after a revision.
func (s *store) positionAfter(revision int64) int {
	if i := slices.IndexFunc(s.log, func(c change) bool { return c.revision > revision }); i >= 0 {
		return i
	}
	return len(s.log)
}

// reach returns the error of an answer at a revision.
func (s *store) reach(revision int64) error {
	switch {
	case revision > s.revision && !s.has("the future is the present"):
		return storage.ErrFutureRevision
	case revision < s.floor() && !s.has("compacted revisions are read") && !s.has("a compacted revision is read as the oldest one"):
		return storage.ErrCompacted
	}
	return nil
}

// past returns the state of a range at a revision.
func (s *store) past(span history.Range, revision int64) state {
	st, inside := make(state), s.within(span)
	for _, c := range s.log {
		if c.revision <= revision && inside(c.key) {
			s.addTo(st, c)
		}
	}
	return st
}

// addTo makes a change to a state.
func (s *store) addTo(st state, c change) {
	if c.deleted {
		delete(st, c.key)
		return
	}
	r := history.Record{Resource: c.res, Created: c.revision, Modified: c.revision, Writes: 1}
	if was, there := st[c.key]; there && !s.has("a rewrite counts as a creation") {
		r.Created, r.Writes = was.Created, was.Writes+1
	}
	st[c.key] = r
}

// within returns a function that reports whether a key is in a range.
func (s *store) within(span history.Range) func(key string) bool {
	from, to := keyOf(span.From), keyOf(span.To)
	return func(key string) bool {
		return key >= from && (span.To == nil || key < to || key == to && s.has("a span's end is part of it"))
	}
}

func rangeOf(id *resourcepb.ID) history.Range { return history.Range{From: id, To: nextKey(id)} }

func checkRange(span history.Range) error {
	_, _, err := check.Range(span)
	return err
}

func (h *handle) Scan(ctx context.Context, span history.Range, opts history.ScanOptions) (history.ScanResult, error) {
	if err := h.enter(ctx, check.Scan(opts), checkRange(span)); err != nil {
		return history.ScanResult{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	isLater := opts.Revision != 0 && opts.Limit > 0
	if opts.Revision == 0 {
		opts.Revision = h.revision
	}
	if err := h.reach(opts.Revision); err != nil {
		return history.ScanResult{}, err
	}
	at := max(opts.Revision, h.floor())
	if h.has("scans show the present") || isLater && h.has("the parts of a scan are of different moments") {
		at = h.revision
	}
	most, size := cmp.Or(opts.Bytes, 4<<20), 0
	if h.has("large scans end early") {
		most = min(most, 4<<20)
	}
	scan := history.ScanResult{Revision: opts.Revision}
	for _, r := range h.past(span, at).records() {
		scan.Count++
		if scan.More || opts.Limit > 0 && len(scan.Records) == opts.Limit || size >= most {
			scan.More = true
			continue
		}
		size += proto.Size(r.Resource)
		r.Resource = clone(r.Resource)
		if opts.KeysOnly && !h.has("scans of keys return resources") {
			r.Resource = &resourcepb.Resource{Id: r.Resource.Id, Version: r.Resource.Version}
		}
		scan.Records = append(scan.Records, r)
	}
	if scan.More {
		scan.Rest = history.Range{From: nextKey(scan.Records[len(scan.Records)-1].Resource.Id), To: span.To}
	}
	switch {
	case !opts.Count:
		scan.Count = 0
	case h.has("counts end with the page"):
		scan.Count = int64(len(scan.Records))
	}
	return scan, nil
}

func (h *handle) Swap(ctx context.Context, swap history.Swap) (history.SwapResult, error) {
	id := cmp.Or(swap.Delete, swap.Write.GetId())
	if err := h.enter(ctx, errorOf(check.Swap(swap, 0))); err != nil {
		return history.SwapResult{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	is, there := h.past(rangeOf(id), h.revision)[keyOf(id)]
	remembers := swap.Expect != 0 && swap.Expect == h.swapped[keyOf(id)] && h.has("a swap compares with what the handle remembers")
	if is.Modified != swap.Expect && !remembers && !h.sometimes("a swap does not compare", h.rarer(1, 2)) {
		swapped := history.SwapResult{Revision: h.revision}
		if there && !h.has("a refusal tells nothing") {
			is.Resource = clone(is.Resource)
			swapped.Stored = &is
		}
		return swapped, nil
	}
	if h.has("swaps compare the version") && there && swap.Write.GetVersion() != "" && swap.Write.Version != is.Resource.Version {
		return history.SwapResult{Revision: h.revision, Stored: &is}, nil
	}
	if h.has("swaps delete only the same uid") && there && swap.Delete != nil && swap.Delete.Uid != is.Resource.Id.Uid {
		return history.SwapResult{Done: true, Revision: h.revision}, nil
	}
	if h.has("a swap compares, then acts") {
		h.pause()
	}
	op := storage.Op{Write: swap.Write}
	switch {
	case swap.Delete != nil && !there:
		return history.SwapResult{Done: true, Revision: h.revision}, nil
	case swap.Delete != nil:
		op = storage.Op{Delete: is.Resource.Id, Version: is.Resource.Version}
	case there && is.Resource.Id.Uid != swap.Write.Id.Uid && !h.has("swaps replace another uid"):
		return history.SwapResult{}, storage.ErrWrongUid
	}
	written := h.apply([]storage.Op{op})
	h.swapped[keyOf(id)] = h.revision
	swapped := history.SwapResult{Done: true, Revision: h.revision, Stored: &is}
	if h.sometimes("swaps tell the revision before", h.rarer(1, 10)) {
		swapped.Revision--
	}
	if op.Write != nil {
		now := h.past(rangeOf(id), h.revision)[keyOf(id)]
		now.Resource = written[0]
		swapped.Stored = &now
	}
	return swapped, nil
}

func (h *handle) Compact(ctx context.Context, revision int64) error {
	if err := h.enter(ctx, check.Revision(revision)); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if revision > h.revision {
		return storage.ErrFutureRevision
	}
	if revision > h.compacted || h.has("a compaction goes back") {
		h.compacted = revision
	}
	return nil
}

// compact compacts all history.
func (s *store) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.revision
}

func (h *handle) Follow(ctx context.Context, span history.Range, after int64) (history.Follower, error) {
	if err := h.enter(ctx, check.Revision(after), checkRange(span)); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case after < h.floor() && h.has("followers skip what is compacted"):
		after = h.floor()
	case after == h.compacted && h.has("nobody follows from the compacted revision"):
		return nil, storage.ErrCompacted
	}
	if err := h.reach(after); err != nil {
		return nil, err
	}
	position := h.positionAfter(after)
	switch {
	case h.has("followers begin one too late") && position < len(h.log):
		position++
	case h.has("followers begin one too early") && position > 0:
		position--
	}
	f := &follower{watch: h.newWatch(filter{anything, anywhere, ""}, position), inside: h.within(span), passed: position, now: state{}, older: state{}}
	for _, c := range h.log[:position] {
		h.addTo(f.now, c)
	}
	return f, nil
}

// follower is a watch that returns whole commits, with states before and after.
type follower struct {
	*watch
	inside func(key string) bool
	passed int   // changes of the log
	now    state // after these
	older  state // of each key, before its last change; for bugs only
	begun  []history.Change
}

func (f *follower) Next(ctx context.Context) ([]history.Change, int64, error) {
	for {
		if err := f.compacted(); err != nil {
			return nil, 0, err
		}
		ev, err := f.watch.Next(ctx)
		if err != nil {
			return nil, 0, err
		}
		f.h.mu.Lock()
		revision := f.h.revisionAt(f.position)
		for ; f.passed < min(f.position, len(f.h.log)); f.passed++ { // a crash may have shortened the log
			f.add(f.h.log[f.passed])
		}
		f.h.mu.Unlock()
		switch parts := f.h.has("commits come in parts"); {
		case ev.GetBookmark() != nil:
			if f.h.has("progress is ahead") {
				revision++
			}
			return nil, revision, nil
		case ev.More && !parts && !f.h.has("a commit is followed in two halves"), len(f.begun) == 0:
			continue
		case !parts:
			f.begun[len(f.begun)-1].More = false
		default:
			f.begun[len(f.begun)-1].More = ev.More
		}
		if f.h.has("progress ends inside a commit") && f.endsOutside() {
			revision--
		}
		changes := f.begun
		f.begun = nil
		return changes, revision, nil
	}
}

// endsOutside reports whether the last change that the follower has read is outside its range.
func (f *follower) endsOutside() bool {
	f.h.mu.Lock()
	defer f.h.mu.Unlock()
	return f.passed > 0 && !f.inside(f.h.log[f.passed-1].key)
}

// compacted returns the error of a follower whose next change is compacted.
func (f *follower) compacted() error {
	f.h.mu.Lock()
	defer f.h.mu.Unlock()
	if f.h.revisionAt(f.position) < f.h.floor() {
		return fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrCompacted)
	}
	return nil
}

// add adds a change to those that the follower returns next.
func (f *follower) add(c change) {
	before, there := f.now[c.key]
	f.h.addTo(f.now, c)
	if f.h.has("before is one too early") || f.h.sometimes("a follower reports an older previous state", 20) {
		before, there = f.older[c.key]
	}
	f.older[c.key] = before
	if !f.inside(c.key) && !f.h.has("followers know no span") || c.res.Metadata[lastMark] == "" && f.h.sometimes("a follower skips a change", 50) {
		return
	}
	told := history.Change{Revision: c.revision, More: true}
	if now, stays := f.now[c.key]; stays {
		now.Resource = clone(now.Resource)
		told.New = &now
	}
	if there && before.Resource != nil && !(c.deleted && f.h.has("deletions have no state before")) {
		before.Resource = clone(before.Resource)
		told.Old = &before
	}
	f.begun = append(f.begun, told)
}

// Recall implements history.Recaller.
func (w *watch) Recall() { w.recalls = true }

// recall adds the state before a change of the watch.
func (w *watch) recall(ev *resourcepb.WatchEvent, c change) {
	if !w.recalls {
		return
	}
	at := w.position - 1
	if w.h.has("recalled events show the present") {
		at++
	}
	if before := w.h.at(c.key, at); before != nil {
		ev.Before = clone(before)
	}
}

// listAt is the listing at a revision.
func (h *handle) listAt(f filter, revision int64) []*resourcepb.Resource {
	if h.has("listings at a revision show the present") {
		revision = h.revision
	}
	return f.selectFrom(resourcesOf(h.past(history.Range{}, revision).records()))
}

// state is the content of a store, by key.
type state map[string]history.Record

func (st state) records() []history.Record {
	records := make([]history.Record, 0, len(st))
	for _, k := range slices.Sorted(maps.Keys(st)) {
		records = append(records, st[k])
	}
	return records
}

func resourcesOf(records []history.Record) []*resourcepb.Resource {
	var all []*resourcepb.Resource
	for _, r := range records {
		all = append(all, r.Resource)
	}
	return all
}
