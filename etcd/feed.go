package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// Bookmarks are proven by revisions. A linearizable read returns a revision that contains all writes acknowledged before. The
// feed's watch of etcd reaches it with an event of that revision or a later one, or, while the store does not change, with a
// progress response: the server has sent all events up to a revision. The feed requests progress until the revision is reached,
// because a member that lags, or that has events to send first, sends no response or one with an older revision.

func newSource(c *conn) *source {
	return &source{c: c, target: progressTarget{changeCh: make(chan struct{})}}
}

// progressTarget is the newest revision that has a promised bookmark.
type progressTarget struct {
	mu       sync.Mutex
	rev      int64
	changeCh chan struct{} // closed and replaced when rev increases
}

// revision returns the target and a channel that is closed when the target increases.
func (w *progressTarget) revision() (rev int64, raised <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rev, w.changeCh
}

func (w *progressTarget) raise(rev int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rev > w.rev {
		w.rev = rev
		close(w.changeCh)
		w.changeCh = make(chan struct{})
	}
}

// Newest implements driver.Prover.
func (s *source) Newest(ctx context.Context) (position, error) {
	ctx, cancel := context.WithTimeout(ctx, s.c.opts.Timeout)
	defer cancel()
	ctx, done, err := s.c.begin(ctx)
	if err != nil {
		return position{}, err
	}
	defer done()
	seen := s.c.newestRevision.Load()
	rev, err := s.c.revision(ctx)
	switch {
	case err != nil:
		return position{}, err
	case rev < seen:
		return position{}, errWentBack
	}
	s.target.raise(rev)
	return endOf(rev), nil
}

// HasReached implements driver.Prover.
func (s *source) HasReached(at, target position) bool { return !at.less(target) }

// history reads past changes through one watch of etcd, which it keeps from page to page. For each watch that starts far behind the
// server scans all later changes: 40,000 changes took 108 s in pages of 500 with a watch for each page, and take 3 s with one watch.
type history struct {
	c        *conn
	filter   *key.Filter
	at       position
	lifetime context.Context // ends with Close, or with the backend
	cancel   context.CancelFunc

	stream *stream // nil: to be opened at next
	next   int64   // the next revision to read

	// Progress of a failed call, kept for the next one. A page takes several responses: a reader that started over after each broken
	// connection might never finish one.
	newest int64    // the last revision to read; 0: unknown
	read   []*event // events after at and before next, not returned yet because the check for a compaction is outstanding
	size   int      // bytes of read
}

// responseTimeout bounds the wait of a page for the next response. A server that scans a long history takes many seconds.
const responseTimeout = time.Minute

// History implements driver.Source.
func (s *source) History(from position, filter *key.Filter) driver.History[position] {
	h := &history{c: s.c, filter: filter, at: from, next: from.rev}
	if from.key == endKey {
		h.next++
	}
	h.lifetime, h.cancel = context.WithCancel(s.c.lifetime)
	return h
}

// Close implements driver.History.
func (h *history) Close() { h.cancel() }

// Page implements driver.History. A page ends with a complete response of the server, or a complete fragment, since that is in memory
// anyway.
func (h *history) Page(ctx context.Context, limit int) (events []*event, end position, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.c.opts.Outage)
	defer cancel()
	ctx, done, err := h.c.begin(ctx)
	if err != nil {
		return nil, h.at, false, err
	}
	defer done()
	fresh := h.newest == 0
	if fresh {
		if h.newest, err = h.newestSince(ctx, h.at.rev); err != nil {
			return nil, h.at, false, err
		}
	}
	if h.next > h.newest && h.next == h.first() {
		end := endOf(h.newest)
		h.newest = 0
		return nil, end, false, nil
	}
	if err = h.fill(ctx, limit); err != nil {
		h.drop()
		if h.next == h.first() || errors.Is(err, storage.ErrCompacted) {
			return nil, h.at, false, translate(err)
		}
	}
	if err := checkRetained(ctx, h.c, h.first()-1); err != nil {
		return nil, h.at, false, translate(err)
	}
	// The page may be the last one only if this call has read the newest revision itself.
	more = !fresh || h.next <= h.newest
	events, h.at = h.read, endOf(h.next-1)
	h.newest, h.read, h.size = 0, nil, 0
	return events, h.at, more, nil
}

// first returns the first revision that has events not yet returned.
func (h *history) first() int64 {
	if h.at.key == endKey {
		return h.at.rev + 1
	}
	return h.at.rev
}

// newestSince reads the newest revision. It fails with errWentBack if that is older than seen.
func (h *history) newestSince(ctx context.Context, seen int64) (int64, error) {
	newest, err := h.c.revision(ctx)
	switch {
	case err != nil:
		return 0, err
	case newest < seen:
		return 0, errWentBack
	}
	return newest, nil
}

// fill reads up to the newest revision, or until the page has enough events or bytes.
func (h *history) fill(ctx context.Context, limit int) (err error) {
	for h.next <= h.newest && len(h.read) < limit && h.size < driver.PageBytes {
		if h.stream == nil {
			lower, upper := h.c.layout.keyRange(h.filter)
			if h.stream, err = openStream(h.lifetime, h.c, lower, upper, h.next); err != nil {
				return err
			}
		}
		if err := h.take(ctx); err != nil {
			return err
		}
	}
	return nil
}

// take reads one response.
func (h *history) take(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	resp, err := h.stream.await(ctx)
	if err != nil {
		return err
	}
	if len(resp.Events) == 0 {
		h.next = max(h.next, resp.Header.Revision+1)
		if h.next <= h.newest { // the member lags, or the cluster has lost revisions
			_, err = h.newestSince(ctx, h.newest)
			return err
		}
	}
	byRevision(resp.Events, func(rev int64, changes []*mvccpb.Event) bool {
		if err = addPrevious(ctx, h.c, rev, changes); err != nil {
			return false
		}
		var found []*event
		if found, err = h.c.layout.events(rev, changes); err != nil {
			return false
		}
		for _, ev := range found {
			if h.at.less(ev.At) {
				h.read = append(h.read, ev)
				h.size += ev.Size
			}
		}
		h.next = rev + 1
		return true
	})
	return err
}

// drop closes the stream. The next page opens another.
func (h *history) drop() {
	if h.stream != nil {
		h.stream.close()
		h.stream = nil
	}
}

type event = driver.Event[position]

// source is the source of the feed: one watch of etcd over all resources of the store.
//
//	  ┌──────────► check: same store, quorum, revision not behind us
//	  │              │
//	pause            ▼
//	  ▲            open the watch after the last whole revision
//	  │              │
//	  │              ▼
//	  └── broken ── publish revision by revision; request progress when it is idle, or when a bookmark waits for it
//
// The run ends when history is compacted or missing, and when an outage lasts longer than Options.Outage.
type source struct {
	c      *conn
	target progressTarget
}

// The feed requests progress after idleInterval without a response. After maxIdle requests in a row without a response it opens
// another watch.
const (
	idleInterval = 5 * time.Second
	maxIdle      = 3
)

// Run implements driver.Source.
func (s *source) Run(ctx context.Context, ready func(position), publish func([]*event, position)) error {
	f := &follower{source: s, ready: ready, publish: publish, lastResponse: time.Now()}
	defer s.c.endFeed()
	for attempt := 0; ; attempt++ {
		before := f.lastResponse
		err := f.follow(ctx)
		var lost errLost
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &lost), errors.Is(err, storage.ErrCompacted) && f.at != 0:
			return err
		case time.Since(f.lastResponse) > s.c.opts.Outage:
			return fmt.Errorf("etcd did not respond for %v: %w", s.c.opts.Outage, err)
		}
		if f.lastResponse.After(before) {
			attempt = 0
		}
		s.c.lag.Lost(f.lastResponse)
		s.c.Logger().WarnContext(ctx, "the feed cannot read changes", "error", err)
		if !pause(ctx, attempt) {
			return ctx.Err()
		}
	}
}

// follower is one run of the source.
type follower struct {
	source       *source
	ready        func(position)
	publish      func([]*event, position)
	at           int64     // the last complete revision that was published; 0 before the first watch
	lastResponse time.Time // from the cluster
}

// follow opens a watch after the last published revision, and publishes events until the watch breaks.
func (f *follower) follow(ctx context.Context) error {
	c := f.source.c
	newest, err := f.identify(ctx)
	if err != nil {
		return err
	}
	from := f.at
	if from == 0 {
		from = newest
	}
	resources := c.layout.resources
	stream, err := openStream(ctx, c, resources, key.PrefixEnd(resources), from+1)
	if err != nil {
		return err
	}
	defer stream.close()
	if err := f.checkRetained(ctx, from); err != nil {
		return err
	}
	if f.at == 0 {
		f.at = from
		f.ready(endOf(from))
	}
	f.lastResponse = time.Now()
	c.lag.Answered()
	return f.receive(ctx, stream, from)
}

// identify returns the revision of the cluster. It fails unless the prefix still holds the store that was opened, and the revision is
// not older than the newest one seen.
func (f *follower) identify(ctx context.Context) (int64, error) {
	c := f.source.c
	ctx, cancel := context.WithTimeout(ctx, min(attemptTimeout, c.opts.Outage))
	defer cancel()
	newest := f.at
	if newest != 0 {
		newest = max(newest, c.newestRevision.Load()) // a watch may have started after the last published revision
	}
	resp, err := c.kv.Get(ctx, c.layout.storeKey())
	if err != nil {
		return 0, err
	}
	store, err := storeIn((*pb.RangeResponse)(resp))
	switch {
	case err != nil:
		return 0, errLost{err}
	case store != c.layout.store:
		return 0, errLost{errors.New("the prefix now holds another store")}
	case resp.Header.Revision < newest:
		return 0, errLost{errWentBack}
	}
	c.recordRevision(resp.Header.Revision)
	return resp.Header.Revision, nil
}

// checkRetained is the handle's check with a timeout and a translated error.
func (f *follower) checkRetained(ctx context.Context, rev int64) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return translate(checkRetained(ctx, f.source.c, rev))
}

// receive publishes the events of the watch. Before it publishes the first response, it checks that the start revision of the watch is
// still retained: a compaction at that very revision would otherwise go unnoticed.
func (f *follower) receive(ctx context.Context, s *stream, from int64) error {
	interval := max(min(idleInterval, f.source.c.opts.Outage/4), time.Millisecond) // a ticker must have a positive interval
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	idle, begun := 0, false
	var retry <-chan time.Time // when to repeat the progress request that a bookmark waits for
	for {
		target, raised := f.source.target.revision()
		if target > f.at && retry == nil {
			// The server ignores the request while the member or the watch lags.
			if err := s.requestProgress(); err != nil {
				return err
			}
			retry = time.After(progressPause)
		}
		select {
		case <-raised:
			retry = nil
		case <-retry:
			retry = nil
		case resp, ok := <-s.responses:
			if !ok {
				return s.err
			}
			idle, f.lastResponse = 0, time.Now()
			if !begun {
				if err := f.checkRetained(ctx, from); err != nil {
					return err
				}
				begun = true
			}
			if err := f.take(ctx, resp.Events, resp.Header.Revision); err != nil {
				return err
			}
			ticker.Reset(interval)
		case <-ticker.C:
			if idle++; idle > maxIdle {
				return errors.New("etcd sends no more responses on the watch")
			}
			if err := s.requestProgress(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take publishes events, one revision at a time. A response without events is a progress response: the watch has reached progress.
func (f *follower) take(ctx context.Context, changes []*mvccpb.Event, progress int64) error {
	if len(changes) == 0 {
		if progress > f.at {
			f.at = progress
			f.publish(nil, endOf(progress))
			f.source.c.publishedRevision.Store(progress)
		}
		return nil
	}
	var err error
	byRevision(changes, func(rev int64, changes []*mvccpb.Event) bool {
		if rev <= f.at {
			err = errLost{fmt.Errorf("etcd sent revision %d after %d", rev, f.at)}
			return false
		}
		if err = addPrevious(ctx, f.source.c, rev, changes); err != nil {
			return false
		}
		var events []*event
		if events, err = f.source.c.layout.events(rev, changes); err != nil {
			err = errLost{err}
			return false
		}
		events[len(events)-1].At = endOf(rev) // the revision is complete; this gives a shorter cursor
		f.at = rev
		f.publish(events, endOf(rev))
		f.source.c.publishedRevision.Store(rev)
		return true
	})
	return err
}

// events converts the changes of one revision to events in key order, so all watches see the same order whatever their ranges. Each
// deletion must have its previous value (see addPrevious).
func (l *layout) events(rev int64, changes []*mvccpb.Event) ([]*event, error) {
	slices.SortFunc(changes, func(a, b *mvccpb.Event) int { return strings.Compare(string(a.Kv.Key), string(b.Kv.Key)) })
	events := make([]*event, len(changes))
	commit := int64(0)
	if len(changes) > 1 {
		commit = rev // no state between the changes of one revision can be read
	}
	for i, change := range changes {
		kv := change.Kv
		if change.Type == mvccpb.DELETE {
			kv = change.PrevKv
		}
		k, res, err := l.decode(kv)
		var damaged *storage.DamagedError
		if err != nil && !errors.As(err, &damaged) {
			return nil, fmt.Errorf("%w: %w", storage.ErrCompacted, err) // a retry would fail, too, and the key is unknown, so no watch can be chosen
		}
		events[i] = &event{
			Key: k, Delete: change.Type == mvccpb.DELETE, Resource: res, Damage: err, Size: len(kv.Value),
			At: position{rev, string(k.Bytes())}, Commit: commit,
			Revision: rev, CreateRevision: kv.CreateRevision, Writes: kv.Version,
		}
	}
	return events, nil
}

// Contains implements driver.Source.
func (s *source) Contains(at position, ev *event) bool {
	if ev.At.rev != at.rev || at.key == endKey {
		return ev.At.rev <= at.rev
	}
	return string(ev.Key.Bytes()) <= at.key
}

// Advance implements driver.Source.
func (s *source) Advance(_ position, ev *event) position { return ev.At }

// Merge implements driver.Source.
func (s *source) Merge(at, end position) position {
	if at.less(end) {
		return end
	}
	return at
}

// Encode implements driver.Source.
func (*source) Encode(p position) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.rev))
	if p.key != endKey {
		b = append(b, p.key...)
	}
	return b
}

// Decode implements driver.Source.
func (*source) Decode(b []byte) (position, error) {
	if len(b) < 8 || int64(binary.BigEndian.Uint64(b)) <= 0 {
		return position{}, fmt.Errorf("%w: this is not a cursor", storage.ErrInvalid)
	}
	p := endOf(int64(binary.BigEndian.Uint64(b)))
	if len(b) > 8 {
		p.key = string(b[8:])
	}
	return p, nil
}

var (
	_ driver.Source[position] = (*source)(nil)
	_ driver.Prover[position] = (*source)(nil)
)
