package faults

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
)

// The reference computes the state at a revision from its log. Revision 1 is the empty store, and each change has its own
// revision.

var _ history.Historian = (*handle)(nil)

// reserve takes the revisions of a transaction before it is decided. Only with a defect do other callers see later revisions
// first.
func (s *server) reserve(ops []storage.Op) {
	base := s.revision
	s.revision += int64(len(ops))
	s.mu.Unlock()
	pause(context.Background(), 2*time.Millisecond)
	s.mu.Lock()
	s.reserved = base
}

// number gives a change its revision.
func (s *server) number() int64 {
	if s.reserved != 0 {
		s.reserved++
		return s.reserved
	}
	if !s.sometimes("a revision is used twice", 100) {
		s.revision++
	}
	return s.revision
}

// compact forgets the log so far.
func (s *server) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = len(s.log)
}

// floor is the oldest revision that can be read.
func (s *server) floor() int64 {
	if s.gone == 0 || s.gone > len(s.log) {
		return 1
	}
	return s.log[s.gone-1].revision
}

func (s *server) reach(revision int64) error {
	switch {
	case revision > s.revision:
		return storage.ErrFutureRevision
	case revision < s.floor() && !s.has("a compacted revision is read as the oldest one"):
		return storage.ErrCompacted
	}
	return nil
}

// past returns the state of a range at a revision, in order.
func (s *server) past(span history.Range, revision int64) (all []history.Record) {
	records := map[string]history.Record{}
	for _, c := range s.log {
		if c.revision <= revision && within(span, c.key) {
			c.onto(records)
		}
	}
	for _, r := range records {
		r.Resource = proto.CloneOf(r.Resource)
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b history.Record) int { return cmp.Compare(keyOf(a.Resource.Id), keyOf(b.Resource.Id)) })
	return all
}

// onto makes a change.
func (c entry) onto(records map[string]history.Record) {
	if c.deleted {
		delete(records, c.key)
		return
	}
	r := history.Record{Resource: c.res, Created: c.revision, Modified: c.revision, Writes: 1}
	if was, there := records[c.key]; there {
		r.Created, r.Writes = was.Created, was.Writes+1
	}
	records[c.key] = r
}

func within(span history.Range, key string) bool {
	return (span.From == nil || key >= keyOf(span.From)) && (span.To == nil || key < keyOf(span.To))
}

func (h *handle) Revisions(ctx context.Context) (oldest, newest int64, err error) {
	err = h.exchange(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		oldest, newest = h.floor(), h.revision
		if h.sometimes("the newest revision is an older one", 3) {
			newest = max(oldest, newest-20)
		}
	})
	return oldest, newest, err
}

func (h *handle) Scan(ctx context.Context, span history.Range, opts history.ScanOptions) (scan history.ScanResult, err error) {
	var refused error
	err = h.exchange(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		scan.Revision = cmp.Or(opts.Revision, h.revision)
		if refused = h.reach(scan.Revision); refused != nil {
			return
		}
		at := max(scan.Revision, h.floor())
		if h.has("scans show the present") || opts.Revision != 0 && opts.Limit > 0 && h.has("the parts of a scan are of different moments") {
			at = h.revision
		}
		scan.Records, scan.More = h.past(span, at), false
		if opts.Limit > 0 && len(scan.Records) > opts.Limit {
			scan.Records, scan.More = scan.Records[:opts.Limit], true
			last := scan.Records[opts.Limit-1].Resource.Id
			scan.Rest = history.Range{From: keyRangeOf(last.Tenancy.Namespace, last.Name).To, To: span.To}
		}
	})
	return scan, cmp.Or(err, refused)
}

func (h *handle) Swap(ctx context.Context, swap history.Swap) (swapped history.SwapResult, err error) {
	var refused error
	err = h.exchange(ctx, func() { swapped, refused = h.swap(swap) })
	return swapped, cmp.Or(err, refused)
}

// swap is the server's side of a swap.
func (s *server) swap(swap history.Swap) (swapped history.SwapResult, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := cmp.Or(swap.Delete, swap.Write.GetId())
	span := keyRangeOf(id.Tenancy.Namespace, id.Name)
	var is history.Record
	if all := s.past(span, s.revision); len(all) > 0 {
		is = all[0]
	}
	if is.Modified != swap.Expect && !s.sometimes("a swap does not compare", 2) {
		swapped.Revision = s.revision
		if is.Resource != nil {
			swapped.Stored = &is
		}
		return swapped, nil
	}
	op := storage.Op{Write: proto.CloneOf(swap.Write), Delete: is.Resource.GetId()}
	if op.Write != nil {
		op.Delete = nil
	}
	results := s.apply([]storage.Op{op})
	swapped = history.SwapResult{Done: true, Revision: s.revision, Stored: &is}
	if s.sometimes("a swap returns the previous revision", 10) {
		swapped.Revision--
	}
	if results[0] != nil {
		swapped.Stored = &history.Record{Resource: results[0], Created: s.revision, Modified: s.revision, Writes: 1}
	}
	return swapped, nil
}

func (h *handle) Compact(context.Context, int64) error {
	h.compact()
	return nil
}

func (h *handle) Follow(ctx context.Context, span history.Range, after int64) (history.Follower, error) {
	f := &reader{span: span, records: map[string]history.Record{}, older: map[string]history.Record{}}
	var refused error
	err := h.exchange(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if refused = h.reach(after); refused != nil {
			return
		}
		f.watch = h.newWatch(storage.Wildcard)
		f.position = len(h.log)
		if i := slices.IndexFunc(h.log, func(c entry) bool { return c.revision > after }); i >= 0 {
			f.position = i
		}
		f.begun, f.at = true, after
		for _, c := range h.log[:f.position] {
			c.onto(f.records)
		}
	})
	if err := cmp.Or(err, refused); err != nil {
		return nil, err
	}
	return f, nil
}

// reader is a history.Follower: a watch that reads whole commits, with previous states.
type reader struct {
	*watch
	span    history.Range
	at      int64
	records map[string]history.Record // the state at the position of the watch
	older   map[string]history.Record // the state before that; used by a defect only
}

func (r *reader) Next(ctx context.Context) ([]history.Change, int64, error) {
	for {
		open, cuts := r.h.wire.state()
		select {
		case <-r.closed:
			return nil, 0, storage.ErrWatchClosed
		default:
		}
		select {
		case <-open:
		case <-r.closed:
			continue
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		if r.isGone(cuts) {
			return nil, 0, fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrCompacted)
		}
		changes, told, wake := r.commit(cuts)
		if told {
			return changes, r.at, nil
		}
		select {
		case <-wake:
		case <-r.closed:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// commit returns the changes of the next commit, an outstanding bookmark if there are none, or a channel that is closed when
// there may be more.
func (r *reader) commit(cuts int) (changes []history.Change, told bool, wake <-chan struct{}) {
	h := r.h
	h.mu.Lock()
	defer h.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cuts = cuts
	r.position = min(r.position, len(h.log))
	for r.position < len(h.log) && len(changes) == 0 {
		last := h.log[r.position].last
		if h.has("a commit is followed in two halves") {
			last = r.position + 1
		}
		for ; r.position < last; r.position++ {
			c := h.log[r.position]
			before := r.records[c.key]
			c.onto(r.records)
			r.at = max(r.at, c.revision)
			if !within(r.span, c.key) || c.res.Metadata[metaLast] == "" && h.sometimes("a follower skips a change", 50) {
				continue
			}
			changes = append(changes, r.tell(c, before))
		}
	}
	if len(changes) > 0 {
		changes[len(changes)-1].More = false
		return changes, true, nil
	}
	if len(r.marks) > 0 {
		r.marks, r.at = nil, max(r.at, h.revision)
		return nil, true, nil
	}
	return nil, false, h.wake
}

func (r *reader) tell(c entry, before history.Record) history.Change {
	told := history.Change{Revision: c.revision, More: true}
	if !c.deleted {
		now := r.records[c.key]
		now.Resource = proto.CloneOf(now.Resource)
		told.New = &now
	}
	older := r.older[c.key]
	if r.older[c.key] = before; r.h.sometimes("a follower reports an older previous state", 20) {
		before = older
	}
	if before.Resource != nil {
		before.Resource = proto.CloneOf(before.Resource)
		told.Old = &before
	}
	return told
}
