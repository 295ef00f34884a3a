package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
)

// chronicler writes a chronicle.
type chronicler struct {
	*chronicle
	round   *round
	span    storage.Span
	since   time.Duration // when the first revision was the newest
	resumes int           // one in so many answers ends the follower, and the next one goes on; 0: none
	random  *rand.Rand
	until   *atomic.Int64 // the revision to come to; 0 while it is not known
}

// begun asks for the newest revision on the undisturbed handle, before anything of the round has happened. It is 0 if that has no
// revisions.
func firstRevision(r *round, ctx context.Context) (first int64, since time.Duration, err error) {
	h, ok := r.run.historian(0)
	if !ok {
		return 0, 0, nil
	}
	since = r.run.now()
	_, first, err = newestRevision(r, ctx, h)
	return first, since, err
}

// newest returns the revisions that there are, as soon as the store can tell.
func newestRevision(r *round, ctx context.Context, h storage.Historian) (oldest, newest int64, err error) {
	for began := r.run.now(); ; {
		short, cancel := context.WithTimeout(ctx, patient)
		oldest, newest, err = h.Revisions(short)
		cancel()
		if err == nil {
			return oldest, newest, nil
		}
		if ctx.Err() != nil || r.run.now()-began > r.run.o.Timeout || !errors.Is(err, storage.ErrInconsistent) {
			return 0, 0, fmt.Errorf("faults: Revisions: %w", err)
		}
	}
}

// chronicle has the round told while it goes on, by one of the disturbed handles if one has revisions, until everything up to a
// revision was told that is set later. Where history was compacted under a chronicle, the next one begins with what a scan shows.
func startChronicles(r *round, ctx context.Context, first int64, since time.Duration, until *atomic.Int64) (all []*chronicle) {
	var able []int
	for i := range r.run.handles {
		if _, ok := r.run.historian(i); ok && (i > 0 || len(r.run.handles) == 1) {
			able = append(able, i)
		}
	}
	handle := 0
	if len(able) > 0 {
		handle = able[r.number%len(able)]
	}
	source := r.run.source(fmt.Sprint(r.number, "chronicler"))
	base := map[string]record{}
	for {
		c := &chronicler{
			chronicle: &chronicle{name: "chronicler", handle: handle, base: base, from: first, at: first},
			round:     r, since: since, until: until, resumes: 60, random: source,
		}
		all = append(all, c.chronicle)
		if c.follow(ctx); !c.gone {
			return all
		}
		v, ok := scanAfresh(r, ctx, handle)
		if !ok {
			return all
		}
		base, first, since = v.shown, v.revision, v.call.begin
	}
}

// afresh scans the round's keys as soon as the store can tell.
func scanAfresh(r *round, ctx context.Context, handle int) (*view, bool) {
	h, _ := r.run.historian(handle)
	c := newClient(r, "chronicler", handle)
	for began := r.run.now(); ctx.Err() == nil && r.run.now()-began < r.run.o.Timeout; {
		if v, ok := scanPresent(c, h, storage.ScanOptions{}, patient); ok {
			return v, true
		}
	}
	return nil, false
}

// retell has the round's changes told once more, to an undisturbed handle.
func retell(r *round, ctx context.Context, first, last int64, since time.Duration) (*chronicle, error) {
	h, _ := r.run.historian(0)
	oldest, _, err := newestRevision(r, ctx, h)
	if err != nil {
		return nil, err
	}
	c := &chronicler{
		chronicle: &chronicle{name: "chronicler afterwards", base: map[string]record{}, from: first},
		round:     r, since: since, span: spanOf(r.namespace, ""), until: new(atomic.Int64),
	}
	c.random = r.run.source(fmt.Sprint(r.number, "afterwards"))
	if oldest > first && r.run.h.offers(Compact) { // what was forgotten cannot be told any more
		c.from, c.base = oldest, nil
	}
	c.at = c.from
	c.until.Store(last)
	c.follow(ctx)
	return c.chronicle, nil
}

// follow notes changes until everything up to the revision to come to was told, or ctx ends, or no follower goes on.
func (c *chronicler) follow(ctx context.Context) {
	defer func() { c.broken = c.broken || c.until.Load() == 0 || c.at < c.until.Load() }()
	f, ok := c.open(ctx)
	if !ok {
		return
	}
	defer func() { f.Close() }()
	var asked time.Duration // when the bookmark was asked for that is owed; 0: none is
	healed := false
	for progress := c.round.run.now(); ctx.Err() == nil; {
		until := c.until.Load()
		if until > 0 && !healed {
			healed, progress = true, c.round.run.now()
		}
		if until > 0 && c.at >= until {
			return
		} else if until > 0 && c.round.run.now()-progress > c.round.run.o.Timeout {
			c.odd("followers go on", "it has told everything up to revision %d, and nothing for %v although everything is healed and revision %d is there", c.at, c.round.run.o.Timeout, until)
			return
		}
		began := c.round.run.now()
		short, cancel := context.WithTimeout(ctx, nextFor)
		changes, revision, err := f.Next(short)
		cancel()
		c.round.run.punctual(c.round.history, &call{kind: "Next of a follower", client: c.name, handle: c.handle, begin: began, returned: c.round.run.now()}, began, nextFor)
		switch {
		case err != nil && short.Err() != nil && errors.Is(err, short.Err()):
			asked = c.ask(ctx, f, asked)
			continue
		case err != nil && errors.Is(err, storage.ErrWatchClosed) && c.round.run.h.offers(Compact) && ctx.Err() == nil:
			if errors.Is(err, storage.ErrCompacted) {
				c.forgotten("Next of a follower", err)
				return
			}
			f.Close()
			if f, ok = c.open(ctx); !ok {
				return
			}
			asked = 0
			continue
		case err != nil:
			c.odd("followers go on", "Next: %v", err)
			return
		}
		if revision > c.at || len(changes) > 0 {
			progress = c.round.run.now()
		}
		if len(changes) == 0 && asked > 0 {
			c.marked(asked, revision)
			asked = 0
		}
		c.note(changes, revision)
		if c.resumes > 0 && c.random.IntN(c.resumes) == 0 {
			f.Close()
			if f, ok = c.open(ctx); !ok {
				return
			}
			asked = 0
		}
	}
}

// open opens a follower after what was told so far. It returns false if that cannot be.
func (c *chronicler) open(ctx context.Context) (storage.Follower, bool) {
	h, ok := c.round.run.historian(c.handle)
	for began := c.round.run.now(); ok && ctx.Err() == nil; {
		short, cancel := context.WithTimeout(ctx, patient)
		f, err := h.Follow(short, c.span, c.at)
		cancel()
		switch {
		case err == nil:
			return f, true
		case errors.Is(err, storage.ErrCompacted) && c.round.run.h.offers(Compact):
			c.forgotten("Follow", err)
			return closedFollower{}, false
		case !errors.Is(err, storage.ErrInconsistent) && ctx.Err() == nil, c.round.run.now()-began > c.round.run.o.Timeout:
			c.odd("followers go on", "Follow after revision %d: %v", c.at, err)
			return closedFollower{}, false
		}
	}
	return closedFollower{}, false
}

// closedFollower is none: whoever closes it has closed the last one already.
type closedFollower struct{ storage.Follower }

func (closedFollower) Close() {}

// ask asks for a bookmark when nothing comes: often where a revision is waited for. It returns when it asked for the one that is owed.
func (c *chronicler) ask(ctx context.Context, f storage.Follower, owed time.Duration) time.Duration {
	waiting := c.until.Load() > 0
	if !waiting && (owed > 0 || c.random.IntN(2) == 0) {
		return owed
	}
	at := c.round.run.now()
	short, cancel := context.WithTimeout(ctx, nextFor)
	defer cancel()
	err := f.Bookmark(short)
	switch {
	case err == nil && !waiting:
		return at
	case err != nil && short.Err() == nil && !errors.Is(err, storage.ErrWatchClosed): // Next says why it ended
		c.odd("followers go on", "Bookmark: %v", err)
	}
	return 0 // which of several requests is answered is not known
}

// marked notes the answer to a bookmark: the revision is no older than what was acknowledged before.
func (c *chronicler) marked(asked time.Duration, revision int64) {
	now := c.round.run.now()
	c.round.read(reading{revision: revision, call: &call{kind: "bookmark", client: c.name, handle: c.handle, begin: asked, returned: now, end: now, fate: done}})
}

// note notes changes and holds their numbers against those before.
func (c *chronicler) note(changes []storage.Change, revision int64) {
	last, now := c.at, c.round.run.now()
	group := 0
	if len(c.told) > 0 {
		group = c.told[len(c.told)-1].group
	}
	for i, ch := range changes {
		first := i == 0 || !changes[i-1].More
		if first {
			group++
		}
		if ch.Revision < last || first && ch.Revision == last {
			c.odd("revisions rise", "a change has revision %d, after everything up to %d was told: %v, in place of %v", ch.Revision, last, recordOf(ch.Now), recordOf(ch.Before))
		}
		last = max(last, ch.Revision)
		if i == len(changes)-1 && ch.More {
			c.odd("commits are followed as a whole", "Next ended in the middle of one, with revision %d", ch.Revision)
		}
		if ch.Now == nil && ch.Before == nil {
			c.odd("followers tell every change once", "a change of nothing to nothing, with revision %d", ch.Revision)
			continue
		}
		stored := ch.Now
		if stored == nil {
			stored = ch.Before
		}
		if id := stored.Resource.GetId(); id.GetTenancy().GetNamespace() == c.round.namespace {
			told := change{key: id.GetName(), revision: ch.Revision, now: recordOf(ch.Now), before: recordOf(ch.Before), group: group, at: now}
			if ch.Now != nil {
				told.name = ch.Now.Resource.GetMetadata()[metaName]
				if wrong := damaged(ch.Now.Resource); wrong != "" {
					c.odd("content", "a change: %s", wrong)
				}
			}
			c.told = append(c.told, told)
		}
	}
	if revision < last {
		c.odd("revisions rise", "Next answered with revision %d, after everything up to %d was told", revision, last)
	}
	c.at = max(c.at, revision)
}

func (c *chronicler) odd(check, format string, args ...any) {
	c.round.odd(Violation{check, fmt.Sprintf("%s on handle %d: %s", c.name, c.handle, fmt.Sprintf(format, args...))})
}

// forgotten notes that the chronicle has a gap because history was compacted.
func (c *chronicler) forgotten(what string, err error) {
	c.gone = true
	from := newest{since: c.since}
	for i := len(c.told) - 1; i >= 0 && from.write == ""; i-- {
		from.write = c.told[i].name
	}
	c.round.forget(forgotten{c.name, what, c.handle, from, c.round.run.now(), err})
}
