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

// A bookmark is proven by revisions. A linearizable read names a revision that contains everything acknowledged before. The
// feed's watch of etcd gets there by an event of that revision or a later one, or, where nothing of the store changes, by the
// server's word that it has sent all up to a revision. It is asked for that word until the revision is reached: a member that
// is behind, or that has events to send first, gives none or one about an older revision.

func newSource(b *handle) *source {
	return &source{b: b, target: progressTarget{raisedCh: make(chan struct{})}}
}

// progressTarget is the newest revision that a bookmark was promised for.
type progressTarget struct {
	mu       sync.Mutex
	rev      int64
	raisedCh chan struct{} // closed and replaced when rev increases
}

// revision returns what is wanted now, and what is closed when it is more.
func (w *progressTarget) revision() (rev int64, raised <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rev, w.raisedCh
}

func (w *progressTarget) raise(rev int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rev > w.rev {
		w.rev = rev
		close(w.raisedCh)
		w.raisedCh = make(chan struct{})
	}
}

// Newest implements driver.Prover.
func (s *source) Newest(ctx context.Context) (position, error) {
	ctx, cancel := context.WithTimeout(ctx, s.b.opts.Timeout)
	defer cancel()
	ctx, done, err := s.b.begin(ctx)
	if err != nil {
		return position{}, err
	}
	defer done()
	seen := s.b.newestRevision.Load()
	rev, err := s.b.revision(ctx)
	switch {
	case err != nil:
		return position{}, err
	case rev < seen:
		return position{}, errWentBack
	}
	s.target.raise(rev)
	return endOf(rev), nil
}

// Reached implements driver.Prover.
func (s *source) Reached(at, target position) bool { return !at.less(target) }

// history reads changes of the past through one watch of etcd, which it keeps from page to page. To begin a watch far behind
// costs the server a look at all that came since: 40,000 changes took 108 s by pages of 500 with a watch for each, and take 3 s so.
type history struct {
	b        *handle
	filter   *key.Filter
	at       position
	lifetime context.Context // ends with Close, or with the backend
	cancel   context.CancelFunc

	stream *stream // nil: to be begun at next
	next   int64   // the revision that the reading has come to

	// What a call that failed leaves to the one after it, so that a connection which breaks again and again holds up nobody
	// for ever: a page takes several answers in a row, and whoever began each time with the first might never see the last.
	newest int64    // until where to read; 0: to be asked for
	read   []*event // after at and before next, and not handed out: nobody has proven yet that none is missing
	size   int      // their bytes
}

// silence is how long a page may wait for the next response. A server that looks at much history takes its time.
const silence = time.Minute

// History implements driver.Source.
func (s *source) History(from position, filter *key.Filter) driver.History[position] {
	h := &history{b: s.b, filter: filter, at: from, next: from.rev}
	if from.key == endKey {
		h.next++
	}
	h.lifetime, h.cancel = context.WithCancel(s.b.lifetime)
	return h
}

// Close implements driver.History.
func (h *history) Close() { h.cancel() }

// Page implements driver.History. A page ends with a whole response of the server, or a fragment of one: it is in memory anyway.
func (h *history) Page(ctx context.Context, limit int) (events []*event, end position, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.b.opts.Outage)
	defer cancel()
	ctx, done, err := h.b.begin(ctx)
	if err != nil {
		return nil, h.at, false, err
	}
	defer done()
	asked := h.newest == 0
	if asked {
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
	if err := h.b.checkRetained(ctx, h.first()-1); err != nil {
		return nil, h.at, false, translate(err)
	}
	// That newest was the newest state during this call is known only if this call asked.
	more = !asked || h.next <= h.newest
	events, h.at = h.read, endOf(h.next-1)
	h.newest, h.read, h.size = 0, nil, 0
	return events, h.at, more, nil
}

// first is the first revision of which something is still to be handed out.
func (h *history) first() int64 {
	if h.at.key == endKey {
		return h.at.rev + 1
	}
	return h.at.rev
}

// newestSince asks for the newest revision, which cannot be older than one that was seen.
func (h *history) newestSince(ctx context.Context, seen int64) (int64, error) {
	newest, err := h.b.revision(ctx)
	switch {
	case err != nil:
		return 0, err
	case newest < seen:
		return 0, errWentBack
	}
	return newest, nil
}

// fill reads until the newest revision, or until there are enough events or bytes.
func (h *history) fill(ctx context.Context, limit int) (err error) {
	for h.next <= h.newest && len(h.read) < limit && h.size < driver.PageBytes {
		if h.stream == nil {
			lower, upper := h.b.layout.keyRange(h.filter)
			if h.stream, err = h.b.openStream(h.lifetime, lower, upper, h.next); err != nil {
				return err
			}
		}
		if err := h.take(ctx); err != nil {
			return err
		}
	}
	return nil
}

// take takes a response.
func (h *history) take(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	resp, err := h.stream.await(ctx)
	if err != nil {
		return err
	}
	if len(resp.Events) == 0 {
		h.next = max(h.next, resp.Header.Revision+1)
		if h.next <= h.newest { // the member is behind, or the cluster has lost what it had
			_, err = h.newestSince(ctx, h.newest)
			return err
		}
	}
	byRevision(resp.Events, func(rev int64, changes []*mvccpb.Event) bool {
		if err = h.b.addPrevious(ctx, rev, changes); err != nil {
			return false
		}
		var found []*event
		if found, err = h.b.layout.events(rev, changes); err != nil {
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

// drop gives up the stream: the next page begins another.
func (h *history) drop() {
	if h.stream != nil {
		h.stream.close()
		h.stream = nil
	}
}

type event = driver.Event[position]

// source is the feed's source: one watch of etcd over all resources of the store.
//
//	  ┌──────────► check: same store, quorum, revision not behind us
//	  │              │
//	pause            ▼
//	  ▲            open the watch after the last whole revision
//	  │              │
//	  │              ▼
//	  └── broken ── publish revision by revision; ask for progress when it is quiet, or when a bookmark waits for it
//
// Compacted or missing history ends the run, and so does an outage that lasts too long.
type source struct {
	b      *handle
	target progressTarget
}

// The feed asks for progress when it has heard nothing for a while, and begins anew when it then still hears nothing.
const (
	quiet    = 5 * time.Second
	tooQuiet = 3 // times
)

// Run implements driver.Source.
func (s *source) Run(ctx context.Context, ready func(position), publish func([]*event, position)) error {
	f := &follower{source: s, ready: ready, publish: publish, heard: time.Now()}
	for attempt := 0; ; attempt++ {
		before := f.heard
		err := f.follow(ctx)
		var lost errLost
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &lost), errors.Is(err, storage.ErrCompacted) && f.at != 0:
			return err
		case time.Since(f.heard) > s.b.opts.Outage:
			return fmt.Errorf("etcd stayed away for %v: %w", s.b.opts.Outage, err)
		}
		if f.heard.After(before) {
			attempt = 0
		}
		if !pause(ctx, attempt) {
			return ctx.Err()
		}
	}
}

// follower is one run of the source.
type follower struct {
	source  *source
	ready   func(position)
	publish func([]*event, position)
	at      int64     // the last whole revision that was published; 0 before the first watch
	heard   time.Time // when the cluster was last known to be there
}

// follow opens a watch after what was published last, and publishes until it breaks.
func (f *follower) follow(ctx context.Context) error {
	b := f.source.b
	newest, err := f.identify(ctx)
	if err != nil {
		return err
	}
	from := f.at
	if from == 0 {
		from = newest
	}
	resources := b.layout.resources
	stream, err := b.openStream(ctx, resources, key.PrefixEnd(resources), from+1)
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
	f.heard = time.Now()
	return f.receive(ctx, stream, from)
}

// identify makes sure that the store is still the one that was opened and has not gone back in time, and returns its revision.
func (f *follower) identify(ctx context.Context) (int64, error) {
	b := f.source.b
	ctx, cancel := context.WithTimeout(ctx, min(attemptTimeout, b.opts.Outage))
	defer cancel()
	newest := f.at
	if newest != 0 {
		newest = max(newest, b.newestRevision.Load()) // a watch may have begun later than what was published last
	}
	resp, err := b.kv.Get(ctx, b.layout.storeKey())
	if err != nil {
		return 0, err
	}
	store, err := storeIn((*pb.RangeResponse)(resp))
	switch {
	case err != nil:
		return 0, errLost{err}
	case store != b.layout.store:
		return 0, errLost{errors.New("another store is under the prefix now")}
	case resp.Header.Revision < newest:
		return 0, errLost{errWentBack}
	}
	b.recordRevision(resp.Header.Revision)
	return resp.Header.Revision, nil
}

// checkRetained is the backend's, with its own time limit.
func (f *follower) checkRetained(ctx context.Context, rev int64) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return translate(f.source.b.checkRetained(ctx, rev))
}

// receive publishes what the watch brings. The first response is published only when what the watch began with is still kept:
// until then a compaction at the very revision where it began would have gone unnoticed.
func (f *follower) receive(ctx context.Context, s *stream, from int64) error {
	interval := max(min(quiet, f.source.b.opts.Outage/4), time.Millisecond) // a ticker refuses 0
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	silent, begun := 0, false
	var again <-chan time.Time // when to ask once more for progress that a bookmark waits for
	for {
		wanted, raised := f.source.target.revision()
		if wanted > f.at && again == nil {
			// The server says nothing while it is behind itself, or the watch is.
			if err := s.askProgress(); err != nil {
				return err
			}
			again = time.After(progressPause)
		}
		select {
		case <-raised:
			again = nil
		case <-again:
			again = nil
		case resp, ok := <-s.responses:
			if !ok {
				return s.err
			}
			silent, f.heard = 0, time.Now()
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
			if silent++; silent > tooQuiet {
				return errors.New("etcd has fallen silent")
			}
			if err := s.askProgress(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take publishes events, revision by revision. Without any, the watch says that it has come to a revision.
func (f *follower) take(ctx context.Context, changes []*mvccpb.Event, progress int64) error {
	if len(changes) == 0 {
		if progress > f.at {
			f.at = progress
			f.publish(nil, endOf(progress))
		}
		return nil
	}
	var err error
	byRevision(changes, func(rev int64, changes []*mvccpb.Event) bool {
		if rev <= f.at {
			err = errLost{fmt.Errorf("etcd sent revision %d after %d", rev, f.at)}
			return false
		}
		if err = f.source.b.addPrevious(ctx, rev, changes); err != nil {
			return false
		}
		var events []*event
		if events, err = f.source.b.layout.events(rev, changes); err != nil {
			err = errLost{err}
			return false
		}
		events[len(events)-1].At = endOf(rev) // the revision is whole, which makes a shorter cursor
		f.at = rev
		f.publish(events, endOf(rev))
		return true
	})
	return err
}

// events turns the changes of one revision into events, in key order, which is the same for every watch of whatever range. Each
// deletion has its previous value (addPrevious).
func (l *layout) events(rev int64, changes []*mvccpb.Event) ([]*event, error) {
	slices.SortFunc(changes, func(a, b *mvccpb.Event) int { return strings.Compare(string(a.Kv.Key), string(b.Kv.Key)) })
	events := make([]*event, len(changes))
	commit := int64(0)
	if len(changes) > 1 {
		commit = rev // nobody can read what was between two changes of a revision
	}
	for i, change := range changes {
		kv := change.Kv
		if change.Type == mvccpb.DELETE {
			kv = change.PrevKv
		}
		k, res, err := l.decode(kv)
		var damaged *storage.DamagedError
		if err != nil && !errors.As(err, &damaged) {
			return nil, fmt.Errorf("%w: %w", storage.ErrCompacted, err) // no waiting mends it, and nobody knows who wants it
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
		return position{}, fmt.Errorf("%w: this is no cursor", storage.ErrInvalid)
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
