package conformance

import (
	"bytes"
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

// The reference computes the state at a revision from its log. Revision 1 is the empty store, and each change has the next
// revision.

var _ history.Historian = (*handle)(nil)

func (h *handle) Revisions(ctx context.Context) (oldest, newest int64, err error) {
	if err := h.enter(ctx); err != nil {
		return 0, 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.floor(), h.revision(), nil
}

func (h *handle) revision() int64 { return int64(len(h.log)) + 1 }

func (h *handle) floor() int64 { return max(h.compacted, 1) }

// reach returns the error of an answer at a revision.
func (h *handle) reach(revision int64) error {
	switch {
	case revision > h.revision() && !h.has("the future is the present"):
		return storage.ErrFutureRevision
	case revision < h.floor() && !h.has("compacted revisions are read"):
		return storage.ErrCompacted
	}
	return nil
}

// past returns the state at a revision.
func (h *handle) past(revision int64) state {
	st := make(state)
	for i, c := range h.log[:min(int64(len(h.log)), max(revision-1, 0))] {
		k := keyOf(c.res.Id)
		if c.deleted {
			delete(st, k)
			continue
		}
		number := int64(i) + 2
		r := history.Record{Resource: c.res, Created: number, Modified: number, Writes: 1}
		if was, there := st[k]; there {
			r.Created, r.Writes = was.Created, was.Writes+1
			if h.has("a rewrite counts as a creation") {
				r.Created, r.Writes = number, 1
			}
		}
		st[k] = r
	}
	return st
}

func within(span history.Range, id *resourcepb.ID, closed bool) bool {
	k := []byte(keyOf(id))
	if span.From != nil && bytes.Compare(k, []byte(keyOf(span.From))) < 0 {
		return false
	}
	if span.To == nil {
		return true
	}
	order := bytes.Compare(k, []byte(keyOf(span.To)))
	return order < 0 || closed && order == 0
}

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
	if opts.Revision == 0 {
		opts.Revision = h.revision()
	}
	if err := h.reach(opts.Revision); err != nil {
		return history.ScanResult{}, err
	}
	at := opts.Revision
	if h.has("scans show the present") {
		at = h.revision()
	}
	most, size := cmp.Or(opts.Bytes, 4<<20), 0
	if h.has("large scans end early") {
		most = min(most, 4<<20)
	}
	scan := history.ScanResult{Revision: opts.Revision}
	for _, r := range h.past(at).records() {
		if !within(span, r.Resource.Id, h.has("a span's end is part of it")) {
			continue
		}
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
	st := h.past(h.revision())
	is, there := st[keyOf(id)]
	remembers := swap.Expect != 0 && swap.Expect == h.swapped[keyOf(id)] && h.has("a swap compares with what the handle remembers")
	if is.Modified != swap.Expect && !remembers && !h.has("a swap does not compare") {
		swapped := history.SwapResult{Revision: h.revision()}
		if there && !h.has("a refusal tells nothing") {
			is.Resource = clone(is.Resource)
			swapped.Stored = &is
		}
		return swapped, nil
	}
	if h.has("swaps compare the version") && there && swap.Write.GetVersion() != "" && swap.Write.Version != is.Resource.Version {
		return history.SwapResult{Revision: h.revision(), Stored: &is}, nil
	}
	if h.has("swaps delete only the same uid") && there && swap.Delete != nil && swap.Delete.Uid != is.Resource.Id.Uid {
		return history.SwapResult{Done: true, Revision: h.revision()}, nil
	}
	if h.has("a swap compares, then acts") {
		h.pause()
	}
	op := storage.Op{Write: swap.Write}
	switch {
	case swap.Delete != nil && !there:
		return history.SwapResult{Done: true, Revision: h.revision()}, nil
	case swap.Delete != nil:
		op = storage.Op{Delete: is.Resource.Id, Version: is.Resource.Version}
	case there && is.Resource.Id.Uid != swap.Write.Id.Uid && !h.has("swaps replace another uid"):
		return history.SwapResult{}, storage.ErrWrongUid
	}
	written := h.apply([]storage.Op{op})
	if h.swapped == nil {
		h.swapped = make(map[string]int64)
	}
	h.swapped[keyOf(id)] = h.revision()
	swapped := history.SwapResult{Done: true, Revision: h.revision(), Stored: &is}
	if h.has("swaps tell the revision before") {
		swapped.Revision--
	}
	if op.Write != nil {
		now := h.past(h.revision())[keyOf(id)]
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
	if revision > h.revision() {
		return storage.ErrFutureRevision
	}
	if revision > h.compacted || h.has("a compaction goes back") {
		h.compacted = revision
	}
	return nil
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
	position := int(after) - 1
	switch {
	case h.has("followers begin one too late") && position < len(h.log):
		position++
	case h.has("followers begin one too early") && position > 0:
		position--
	}
	return &follower{watch: h.newWatch(filter{anything, anywhere, ""}, position), span: span}, nil
}

// follower is a watch whose events are computed again.
type follower struct {
	*watch
	span  history.Range
	begun []history.Change
}

func (f *follower) Next(ctx context.Context) ([]history.Change, int64, error) {
	for {
		f.h.mu.Lock()
		compacted := int64(f.position)+1 < f.h.floor()
		f.h.mu.Unlock()
		if compacted {
			return nil, 0, fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrCompacted)
		}
		ev, err := f.watch.Next(ctx)
		if err != nil {
			return nil, 0, err
		}
		f.h.mu.Lock()
		at := f.position
		now, before := f.h.past(int64(at)+1), f.h.past(int64(at))
		if f.h.has("before is one too early") {
			before = f.h.past(int64(max(at-1, 1)))
		}
		f.h.mu.Unlock()
		if ev.GetBookmark() != nil {
			revision := int64(at) + 1
			if f.h.has("progress is ahead") {
				revision++
			}
			return nil, revision, nil
		}
		f.add(ev, int64(at)+1, now, before)
		if (ev.More && !f.h.has("commits come in parts")) || len(f.begun) == 0 {
			continue
		}
		changes := f.begun
		f.begun = nil
		if !f.h.has("commits come in parts") {
			changes[len(changes)-1].More = false
		}
		return changes, int64(at) + 1, nil
	}
}

func (f *follower) add(ev *resourcepb.WatchEvent, revision int64, now, before state) {
	res := ev.GetUpsert().GetResource()
	if ev.GetDelete() != nil {
		res = ev.GetDelete().GetResource()
	}
	if !within(f.span, res.Id, false) && !f.h.has("followers know no span") {
		return
	}
	c := history.Change{Revision: revision, More: true}
	if f.h.has("commits come in parts") {
		c.More = ev.More
	}
	if r, there := now[keyOf(res.Id)]; there && ev.GetDelete() == nil {
		r.Resource = clone(r.Resource)
		c.New = &r
	}
	if r, there := before[keyOf(res.Id)]; there && !(ev.GetDelete() != nil && f.h.has("deletions have no state before")) {
		r.Resource = clone(r.Resource)
		c.Old = &r
	}
	f.begun = append(f.begun, c)
}

// Recall implements history.Recaller.
func (w *watch) Recall() { w.recalls = true }

// recall adds the state before the last change of the watch.
func (w *watch) recall(ev *resourcepb.WatchEvent, res *resourcepb.Resource) {
	if !w.recalls {
		return
	}
	at := w.position
	if w.h.has("recalled events show the present") {
		at++
	}
	if before, there := w.h.past(int64(at))[keyOf(res.Id)]; there {
		ev.Before = clone(before.Resource)
	}
}

// listAt is the listing at a revision, from the name of a token on.
func (h *handle) listAt(f filter, revision int64) []*resourcepb.Resource {
	if h.has("listings at a revision show the present") {
		revision = h.revision()
	}
	all := resourcesOf(h.past(revision).records())
	return slices.DeleteFunc(all, func(res *resourcepb.Resource) bool { return !f.selects(res.Id) })
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
