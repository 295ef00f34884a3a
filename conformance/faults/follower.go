package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// follower watches the whole store through all rounds. Some followers occasionally end their watch and resume it, some of these on
// other handles.
type follower struct {
	run     *run
	name    string
	handle  int
	resumes int  // one in so many events ends the watch; 0: none
	roams   bool // to other handles
	slow    bool // pauses reading now and then
	random  *rand.Rand
	watch   storage.Watch

	mu                  sync.Mutex
	bookmarkRequestedAt time.Duration // when the outstanding bookmark was requested; 0: none
	round               *round
	events              []event         // of the round
	count               map[string]int  // of the round, by key
	lastWrites          map[string]bool // keys whose last write was seen
	broken              bool            // in this round it had to list again
	newest              lowerBound      // a lower bound of its cursor
	complete            chan struct{}   // closed when that was seen of all
}

// nextFor is the timeout of a call of Next. It is shorter than some waits of a watch.
const nextFor = 150 * time.Millisecond

// enterRound makes r the current round and returns the observation of the previous round.
func (f *follower) enterRound(r *round) observation {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := observation{f.name, f.events}
	f.round, f.events, f.count, f.lastWrites, f.complete = r, nil, make(map[string]int), make(map[string]bool), make(chan struct{})
	f.broken = false
	if seen.events != nil { // everything that was written before, and every compaction is over
		f.newest = lowerBound{since: f.run.now()}
	}
	return seen
}

// follow runs until ctx ends. It reports errors of the watch to the round.
func (f *follower) follow(ctx context.Context) {
	defer func() { f.watch.Close() }()
	var askedIn *round      // the round of the last bookmark request
	closings := 0           // so often in a row the watch has ended
	odds := 25              // one in so many times it asks
	unsure := false         // a bookmark may come that answers no known request; the follower asks no more
	var awake time.Duration // since when
	for ctx.Err() == nil {
		if bm, ok := f.watch.(storage.Bookmarker); ok && f.run.h.NoBookmarker == "" && !unsure && f.pendingBookmark() == 0 && f.random.IntN(odds) == 0 {
			at := f.run.now()
			short, cancel := context.WithTimeout(ctx, nextFor)
			err := bm.Bookmark(short)
			over := short.Err() != nil
			cancel()
			switch {
			case err == nil:
				f.setBookmarkRequest(at)
				askedIn, odds = f.current(), 25
			case over && f.run.h.NoResumer != "":
				unsure = true
			case over: // the request may have been registered: this watch may return a bookmark at any time
				if !f.reopen(ctx, f.resume) {
					return
				}
			case !errors.Is(err, errDied) && !errors.Is(err, storage.ErrWatchClosed): // Next says why it ended
				f.current().report(Violation{"bookmarks", fmt.Sprintf("%s on handle %d: Bookmark: %v", f.name, f.handle, err)})
			}
		}
		began := f.run.now()
		short, cancel := context.WithTimeout(ctx, nextFor)
		ev, err := f.watch.Next(short)
		cancel()
		f.run.checkTimeout(f.current().roundLog, &call{kind: "Next", client: f.name, handle: f.handle, begin: began, returnTime: f.run.now()}, began, nextFor)
		switch {
		case err != nil && short.Err() != nil && errors.Is(err, short.Err()):
			odds = 2 // a quiet watch is the case that bookmarks are for
			continue
		case err != nil && errors.Is(err, storage.ErrWatchClosed) && f.run.h.offers(Compact) && ctx.Err() == nil && closings < 100:
			closings++
			f.reportCompaction("Next", err)
			f.setBookmarkRequest(0)
			again := f.resume
			if errors.Is(err, storage.ErrCompacted) { // WatchFrom would return the same error
				again = f.relist
				f.watch.Close()
			}
			if !f.reopen(ctx, again) {
				return
			}
			continue
		case err != nil:
			f.current().report(Violation{"watches go on", fmt.Sprintf("%s on handle %d: Next: %v", f.name, f.handle, err)})
			f.release()
			return
		case ev.GetBookmark() != nil && unsure:
			closings = 0
		case ev.GetBookmark() != nil:
			closings = 0
			f.addBookmark(f.pendingBookmark(), askedIn)
			f.setBookmarkRequest(0)
		default:
			closings = 0
			f.addEvent(ev)
		}
		if f.slow && f.run.now() > awake+3*time.Second && f.random.IntN(400) == 0 {
			pause(ctx, time.Duration(f.random.Int64N(int64(time.Second))))
			awake = f.run.now()
		}
		if f.resumes > 0 && f.random.IntN(f.resumes) == 0 {
			f.setBookmarkRequest(0)
			if !f.reopen(ctx, f.resume) {
				return
			}
		}
	}
}

// reopen calls again to open another watch. It reports a failure as a violation, and returns whether it succeeded.
func (f *follower) reopen(ctx context.Context, again func(ctx context.Context) error) bool {
	err := again(ctx)
	if err != nil {
		if ctx.Err() == nil {
			f.current().report(Violation{"watches resume", fmt.Sprintf("%s on handle %d: %v", f.name, f.handle, err)})
		}
		f.release()
	}
	return err == nil
}

func (f *follower) current() *round {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.round
}

// setBookmarkRequest records the time of a bookmark request; pendingBookmark returns it.
func (f *follower) setBookmarkRequest(at time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bookmarkRequestedAt = at
}

func (f *follower) pendingBookmark() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bookmarkRequestedAt
}

// release unblocks all waits for the follower.
func (f *follower) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bookmarkRequestedAt = 0
	f.finish()
}

func (f *follower) finish() {
	select {
	case <-f.complete:
	default:
		close(f.complete)
	}
}

// addEvent records an event of the round. Events of earlier rounds, which are cleaned up, are ignored.
func (f *follower) addEvent(ev *resourcepb.WatchEvent) {
	e, res := newEvent(ev, f.handle, generation(f.watch), f.run.now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if res.GetId().GetTenancy().GetNamespace() != f.round.namespace {
		return
	}
	if wrong := contentError(res); wrong != "" {
		f.round.report(Violation{"content", f.name + ": an event: " + wrong})
	}
	f.add(e)
	f.count[e.key]++
	f.newest.write = e.name
	if f.random.IntN(20) == 0 && !f.broken {
		after := make(map[string]int, len(f.count))
		for key, n := range f.count {
			after[key] = n
		}
		f.round.addOrigin(origin{cursor: f.watch.Cursor(), follower: f.name, after: after, newest: f.newest})
	}
}

// add adds an event of the round. The caller holds the lock.
func (f *follower) add(e event) {
	f.events = append(f.events, e)
	if e.isLast && !e.isDelete {
		if f.lastWrites[e.key] = true; len(f.lastWrites) == len(f.round.keys) {
			f.finish()
		}
	}
}

// addBookmark records a bookmark that was requested.
func (f *follower) addBookmark(asked time.Duration, in *round) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if asked == 0 {
		f.round.report(Violation{"bookmarks", f.name + " got a bookmark without a request"})
	} else if in == f.round && !f.broken {
		f.round.addBookmark(bookmark{follower: f.name, requestTime: asked, eventCount: len(f.events)})
	}
}

// resume closes the watch and opens a new watch from its cursor.
func (f *follower) resume(ctx context.Context) error {
	cursor := f.watch.Cursor()
	f.watch.Close()
	for began := f.run.now(); ; {
		if f.roams {
			f.mu.Lock()
			f.handle = f.random.IntN(len(f.run.handles))
			f.mu.Unlock()
		}
		resumer, ok := storage.As[storage.Resumer](f.run.handles[f.handle])
		if !ok {
			return errors.New("the backend is no storage.Resumer")
		}
		w, err := resumer.WatchFrom(ctx, thing, allTenancies, "", cursor)
		if err == nil {
			f.watch = w
			return nil
		}
		if errors.Is(err, storage.ErrCompacted) && f.run.h.offers(Compact) {
			f.reportCompaction("WatchFrom", err)
			return f.relist(ctx)
		}
		if !errors.Is(err, storage.ErrInconsistent) || f.run.now()-began > f.run.o.Timeout {
			return fmt.Errorf("WatchFrom: %w", err)
		}
	}
}

// reportCompaction records that a call of the follower failed because history was compacted.
func (f *follower) reportCompaction(what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.round.addCompaction(compactionReport{f.name, what, f.handle, f.newest, f.run.now(), err})
}

// relist opens a watch without a cursor after a compaction. The follower continues from the states in its snapshot.
func (f *follower) relist(ctx context.Context) error {
	for began := f.run.now(); ; {
		err := f.list(ctx)
		if err == nil {
			return nil
		}
		closed := errors.Is(err, storage.ErrWatchClosed) && ctx.Err() == nil // history may be compacted under the snapshot as well
		if !closed && !errors.Is(err, storage.ErrInconsistent) && !errors.Is(err, context.DeadlineExceeded) || f.run.now()-began > f.run.o.Timeout {
			return fmt.Errorf("listing again after history was compacted: %w", err)
		}
	}
}

func (f *follower) list(ctx context.Context) error {
	in, b := f.current(), f.run.handles[f.handle]
	k := &call{kind: "watch's snapshot", client: f.name, handle: f.handle, process: generation(b), strong: true, isSnapshot: f.run.h.ListIsNoSnapshot == "", outcome: outcomeDone}
	k.begin = f.run.now()
	w, err := b.WatchList(ctx, thing, allTenancies, "")
	if err != nil {
		return err
	}
	k.end = f.run.now()
	all, err := f.snapshot(ctx, w)
	if err != nil {
		w.Close()
		return err
	}
	k.returnTime = f.run.now()
	if !k.isSnapshot {
		k.end = k.returnTime
	}
	if k.process != generation(b) {
		k.process = -1
	}
	f.watch = w
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.round == in {
		k.parts = newClient(in, f.name, f.handle).listParts(k.kind, all[in.namespace])
		in.addCall(k)
	}
	f.broken, f.newest = true, lowerBound{since: k.begin}
	found := map[string]event{}
	for _, res := range all[f.round.namespace] {
		ev, _ := newEvent(upsertOf(res), f.handle, generation(w), k.returnTime)
		found[ev.key] = ev
	}
	for _, key := range f.round.keys {
		ev := found[key]
		ev.key, ev.fromList, ev.more, ev.handle, ev.process, ev.at = key, true, false, f.handle, generation(w), k.returnTime
		f.add(ev)
	}
	return nil
}

// snapshot reads a watch's snapshot, and returns it by namespace.
func (f *follower) snapshot(ctx context.Context, w storage.Watch) (map[string][]*resourcepb.Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, longTimeout)
	defer cancel()
	all := map[string][]*resourcepb.Resource{}
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			return nil, err
		}
		if ev.GetEndOfSnapshot() != nil {
			return all, nil
		}
		res := ev.GetUpsert().GetResource()
		in := res.GetId().GetTenancy().GetNamespace()
		all[in] = append(all[in], res)
	}
}

// begin checks that the store is empty.
func (f *follower) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.run.o.Timeout)
	defer cancel()
	ev, err := f.watch.Next(ctx)
	if err == nil && ev.GetEndOfSnapshot() == nil {
		err = fmt.Errorf("there is something in it: %v", ev)
	}
	if err != nil {
		f.watch.Close()
		return fmt.Errorf("faults: the store must be new and empty: %w", err)
	}
	return nil
}

func upsertOf(res *resourcepb.Resource) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: res}}}
}
