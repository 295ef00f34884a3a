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

// follower watches the whole store through all rounds. Some end their watch now and then and resume it, some on other handles.
type follower struct {
	run     *run
	name    string
	handle  int
	resumes int  // one in so many events ends the watch; 0: none
	roams   bool // to other handles
	slow    bool // now and then it looks at nothing for a while
	random  *rand.Rand
	watch   storage.Watch

	mu     sync.Mutex
	asked  time.Duration // when the bookmark was asked for that is owed; 0: none is
	round  *round
	events []event         // of the round
	count  map[string]int  // of the round, by key
	ended  map[string]bool // keys whose last write was seen
	broken bool            // in this round it had to list again
	newest newest          // what its cursor is not older than
	caught chan struct{}   // closed when that was seen of all
}

func (f *follower) String() string { return f.name }

// nextFor is the deadline of a Next: shorter than some of what a watch waits for.
const nextFor = 150 * time.Millisecond

// turn makes r the round that the follower is in, and returns what it saw of the one before.
func (f *follower) turn(r *round) sight {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := sight{f, f.events}
	f.round, f.events, f.count, f.ended, f.caught = r, nil, make(map[string]int), make(map[string]bool), make(chan struct{})
	f.broken = false
	if seen.events != nil { // everything that was written before, and every compaction is over
		f.newest = newest{since: f.run.now()}
	}
	return seen
}

// follow runs until ctx ends. What is wrong with the watch is noted in the round.
func (f *follower) follow(ctx context.Context) {
	defer func() { f.watch.Close() }()
	var askedIn *round      // the round in which a bookmark was asked for
	closings := 0           // so often in a row the watch has ended
	odds := 25              // one in so many times it asks
	var awake time.Duration // since when
	for ctx.Err() == nil {
		if bm, ok := f.watch.(storage.Bookmarker); ok && f.owed() == 0 && f.random.IntN(odds) == 0 {
			at := f.run.now()
			short, cancel := context.WithTimeout(ctx, nextFor)
			err := bm.Bookmark(short)
			over := short.Err() != nil
			cancel()
			switch {
			case err == nil:
				f.ask(at)
				askedIn, odds = f.current(), 25
			case !over && f.run.h.NoBookmarker == "" && !errors.Is(err, errDied) && !errors.Is(err, storage.ErrWatchClosed): // Next says why it ended
				f.current().odd(Violation{"bookmarks", fmt.Sprintf("%s on handle %d: Bookmark: %v", f.name, f.handle, err)})
			}
		}
		began := f.run.now()
		short, cancel := context.WithTimeout(ctx, nextFor)
		ev, err := f.watch.Next(short)
		cancel()
		f.run.punctual(f.current().history, &call{kind: "Next", client: f.name, handle: f.handle, begin: began, returned: f.run.now()}, began, nextFor)
		switch {
		case err != nil && short.Err() != nil && errors.Is(err, short.Err()):
			odds = 2 // silence is what a bookmark is for
			continue
		case err != nil && errors.Is(err, storage.ErrWatchClosed) && f.run.h.offers(Compact) && ctx.Err() == nil && closings < 100:
			closings++
			f.forgotten("Next", err)
			f.ask(0)
			again := f.resume
			if errors.Is(err, storage.ErrCompacted) { // what WatchFrom would say
				again = f.relist
				f.watch.Close()
			}
			if !f.goesOn(ctx, again) {
				return
			}
			continue
		case err != nil:
			f.current().odd(Violation{"watches go on", fmt.Sprintf("%s on handle %d: Next: %v", f.name, f.handle, err)})
			f.giveUp()
			return
		case ev.GetBookmark() != nil:
			closings = 0
			f.marked(f.owed(), askedIn)
			f.ask(0)
		default:
			closings = 0
			f.note(ev)
		}
		if f.slow && f.run.now() > awake+3*time.Second && f.random.IntN(400) == 0 {
			pause(ctx, time.Duration(f.random.Int64N(int64(time.Second))))
			awake = f.run.now()
		}
		if f.resumes > 0 && f.random.IntN(f.resumes) == 0 {
			f.ask(0)
			if !f.goesOn(ctx, f.resume) {
				return
			}
		}
	}
}

// goesOn reports whether the follower could get another watch.
func (f *follower) goesOn(ctx context.Context, again func(ctx context.Context) error) bool {
	err := again(ctx)
	if err != nil {
		if ctx.Err() == nil {
			f.current().odd(Violation{"watches resume", fmt.Sprintf("%s on handle %d: %v", f.name, f.handle, err)})
		}
		f.giveUp()
	}
	return err == nil
}

func (f *follower) current() *round {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.round
}

// ask notes when a bookmark was asked for, owed tells.
func (f *follower) ask(at time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = at
}

func (f *follower) owed() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// giveUp makes sure that nobody waits for the follower.
func (f *follower) giveUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = 0
	f.finish()
}

func (f *follower) finish() {
	select {
	case <-f.caught:
	default:
		close(f.caught)
	}
}

// note notes an event of the round; those of rounds before it, which are cleaned up, do not count.
func (f *follower) note(ev *resourcepb.WatchEvent) {
	e, res := seen(ev, f.handle, generation(f.watch), f.run.now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if res.GetId().GetTenancy().GetNamespace() != f.round.namespace {
		return
	}
	if wrong := damaged(res); wrong != "" {
		f.round.odd(Violation{"content", f.name + ": an event: " + wrong})
	}
	f.add(e)
	f.count[e.key]++
	f.newest.write = e.name
	if f.random.IntN(20) == 0 && !f.broken {
		after := make(map[string]int, len(f.count))
		for key, n := range f.count {
			after[key] = n
		}
		f.round.leave(origin{cursor: f.watch.Cursor(), follower: f, after: after, newest: f.newest})
	}
}

// add adds an event of the round. The caller holds the lock.
func (f *follower) add(e event) {
	f.events = append(f.events, e)
	if e.last && !e.deleted {
		if f.ended[e.key] = true; len(f.ended) == len(f.round.keys) {
			f.finish()
		}
	}
}

// marked notes that a bookmark came that was asked for.
func (f *follower) marked(asked time.Duration, in *round) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if asked == 0 {
		f.round.odd(Violation{"bookmarks", f.name + " got a bookmark that it had not asked for"})
	} else if in == f.round && !f.broken {
		f.round.mark(bookmark{follower: f, asked: asked, at: len(f.events)})
	}
}

// resume ends the watch and goes on from its cursor.
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
		w, err := resumer.WatchFrom(ctx, thing, everywhere, "", cursor)
		if err == nil {
			f.watch = w
			return nil
		}
		if errors.Is(err, storage.ErrCompacted) && f.run.h.offers(Compact) {
			f.forgotten("WatchFrom", err)
			return f.relist(ctx)
		}
		if !errors.Is(err, storage.ErrInconsistent) || f.run.now()-began > f.run.o.Timeout {
			return fmt.Errorf("WatchFrom: %w", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
