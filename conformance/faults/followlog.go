package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
)

// followLogger records a followLog.
type followLogger struct {
	*followLog
	round    *round
	keyRange history.Range
	since    time.Duration // when the first revision was the newest
	resumes  int           // one in this many answers closes the follower, and a new one continues; 0: none
	random   *rand.Rand
	until    *atomic.Int64 // the final revision; 0 while it is not known
}

// startRevision returns the newest revision of the undisturbed handle before the round begins. It is 0 if the backend has no
// revisions.
func startRevision(ctx context.Context, r *round) (first int64, since time.Duration, err error) {
	h, ok := r.run.historian(0)
	if !ok {
		return 0, 0, nil
	}
	since = r.run.now()
	_, first, err = newestRevision(ctx, r, h)
	return first, since, err
}

// newestRevision returns the range of revisions, retrying until the store answers.
func newestRevision(ctx context.Context, r *round, h history.Historian) (oldest, newest int64, err error) {
	for began := r.run.now(); ; {
		short, cancel := context.WithTimeout(ctx, longTimeout)
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

// followRound follows the changes of the round while it runs, through a disturbed handle that has revisions, up to a revision
// that is set later. After a compaction, the next log begins with the result of a scan.
func followRound(ctx context.Context, r *round, first int64, since time.Duration, until *atomic.Int64) (all []*followLog) {
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
		c := &followLogger{
			followLog: &followLog{name: "chronicler", handle: handle, base: base, from: first, at: first},
			round:     r, since: since, until: until, resumes: 60, random: source,
		}
		all = append(all, c.followLog)
		if c.follow(ctx); !c.hitCompaction {
			return all
		}
		v, ok := scanAfresh(ctx, r, handle)
		if !ok {
			return all
		}
		base, first, since = v.records, v.revision, v.call.begin
	}
}

// scanAfresh scans the keys of the round, retrying until the store answers.
func scanAfresh(ctx context.Context, r *round, handle int) (*view, bool) {
	h, _ := r.run.historian(handle)
	c := newClient(r, "chronicler", handle)
	for began := r.run.now(); ctx.Err() == nil && r.run.now()-began < r.run.o.Timeout; {
		if v, ok := scanPresent(c, h, history.ScanOptions{}, longTimeout); ok {
			return v, true
		}
	}
	return nil, false
}

// replayFollower follows the changes of the round a second time, after the faults, through the undisturbed handle.
func replayFollower(ctx context.Context, r *round, first, last int64, since time.Duration) (*followLog, error) {
	h, _ := r.run.historian(0)
	oldest, _, err := newestRevision(ctx, r, h)
	if err != nil {
		return nil, err
	}
	c := &followLogger{
		followLog: &followLog{name: "chronicler afterwards", base: map[string]record{}, from: first},
		round:     r, since: since, keyRange: keyRangeOf(r.namespace, ""), until: new(atomic.Int64),
	}
	c.random = r.run.source(fmt.Sprint(r.number, "afterwards"))
	if oldest > first && r.run.h.offers(Compact) { // compacted changes cannot be followed
		c.from, c.base = oldest, nil
	}
	c.at = c.from
	c.until.Store(last)
	c.follow(ctx)
	return c.followLog, nil
}

// follow records changes until it reaches the final revision, ctx ends, or no follower can continue.
func (c *followLogger) follow(ctx context.Context) {
	defer func() { c.incomplete = c.incomplete || c.until.Load() == 0 || c.at < c.until.Load() }()
	f, ok := c.open(ctx)
	if !ok {
		return
	}
	defer func() { f.Close() }()
	var requestedAt time.Duration // when the outstanding bookmark was requested; 0: none is outstanding
	healed := false
	for progress := c.round.run.now(); ctx.Err() == nil; {
		until := c.until.Load()
		if until > 0 && !healed {
			healed, progress = true, c.round.run.now()
		}
		if until > 0 && c.at >= until {
			return
		} else if until > 0 && c.round.run.now()-progress > c.round.run.o.Timeout {
			c.report("followers go on", "it reported everything up to revision %d, and nothing for %v, although all faults ended and revision %d exists", c.at, c.round.run.o.Timeout, until)
			return
		}
		began := c.round.run.now()
		short, cancel := context.WithTimeout(ctx, nextFor)
		changes, revision, err := f.Next(short)
		cancel()
		c.round.run.checkTimeout(c.round.roundLog, &call{kind: "Next of a follower", client: c.name, handle: c.handle, begin: began, returnTime: c.round.run.now()}, began, nextFor)
		switch {
		case err != nil && short.Err() != nil && errors.Is(err, short.Err()):
			requestedAt = c.requestBookmark(ctx, f, requestedAt)
			continue
		case err != nil && errors.Is(err, storage.ErrWatchClosed) && c.round.run.h.offers(Compact) && ctx.Err() == nil:
			if errors.Is(err, storage.ErrCompacted) {
				c.reportCompaction("Next of a follower", err)
				return
			}
			f.Close()
			if f, ok = c.open(ctx); !ok {
				return
			}
			requestedAt = 0
			continue
		case err != nil:
			c.report("followers go on", "Next: %v", err)
			return
		}
		if revision > c.at || len(changes) > 0 {
			progress = c.round.run.now()
		}
		if len(changes) == 0 && requestedAt > 0 {
			c.addBookmark(requestedAt, revision)
			requestedAt = 0
		}
		c.addChanges(changes, revision)
		if c.resumes > 0 && c.random.IntN(c.resumes) == 0 {
			f.Close()
			if f, ok = c.open(ctx); !ok {
				return
			}
			requestedAt = 0
		}
	}
}

// open opens a follower after the changes recorded so far. It returns false if that is not possible.
func (c *followLogger) open(ctx context.Context) (history.Follower, bool) {
	h, ok := c.round.run.historian(c.handle)
	for began := c.round.run.now(); ok && ctx.Err() == nil; {
		short, cancel := context.WithTimeout(ctx, longTimeout)
		f, err := h.Follow(short, c.keyRange, c.at)
		cancel()
		switch {
		case err == nil:
			return f, true
		case errors.Is(err, storage.ErrCompacted) && c.round.run.h.offers(Compact):
			c.reportCompaction("Follow", err)
			return noFollower{}, false
		case !errors.Is(err, storage.ErrInconsistent) && ctx.Err() == nil, c.round.run.now()-began > c.round.run.o.Timeout:
			c.report("followers go on", "Follow after revision %d: %v", c.at, err)
			return noFollower{}, false
		}
	}
	return noFollower{}, false
}

// noFollower replaces a follower that was closed and not reopened.
type noFollower struct{ history.Follower }

func (noFollower) Close() {}

// requestBookmark requests a bookmark when the follower is quiet, and more often while the final revision is known. It returns the
// time of the request for the outstanding bookmark.
func (c *followLogger) requestBookmark(ctx context.Context, f history.Follower, requestedAt time.Duration) time.Duration {
	waiting := c.until.Load() > 0
	if !waiting && (requestedAt > 0 || c.random.IntN(2) == 0) {
		return requestedAt
	}
	at := c.round.run.now()
	short, cancel := context.WithTimeout(ctx, nextFor)
	defer cancel()
	err := f.Bookmark(short)
	switch {
	case err == nil && !waiting:
		return at
	case err != nil && short.Err() == nil && !errors.Is(err, storage.ErrWatchClosed): // Next says why it ended
		c.report("followers go on", "Bookmark: %v", err)
	}
	return 0 // which of several requests is answered is not known
}

// addBookmark records the answer to a bookmark request: its revision covers everything acknowledged before the request.
func (c *followLogger) addBookmark(requestedAt time.Duration, revision int64) {
	now := c.round.run.now()
	c.round.addReading(reading{revision: revision, call: &call{kind: "bookmark", client: c.name, handle: c.handle, begin: requestedAt, returnTime: now, end: now, outcome: outcomeDone}})
}

// addChanges records changes and checks that their revisions increase.
func (c *followLogger) addChanges(changes []history.Change, revision int64) {
	last, now := c.at, c.round.run.now()
	group := 0
	if len(c.changes) > 0 {
		group = c.changes[len(c.changes)-1].group
	}
	for i, ch := range changes {
		first := i == 0 || !changes[i-1].More
		if first {
			group++
		}
		if ch.Revision < last || first && ch.Revision == last {
			c.report("revisions rise", "a change has revision %d, after everything up to %d was reported: %v, in place of %v", ch.Revision, last, recordOf(ch.New), recordOf(ch.Old))
		}
		last = max(last, ch.Revision)
		if i == len(changes)-1 && ch.More {
			c.report("commits are followed as a whole", "Next ended in the middle of one, with revision %d", ch.Revision)
		}
		if ch.New == nil && ch.Old == nil {
			c.report("followers report every change once", "a change of nothing to nothing, with revision %d", ch.Revision)
			continue
		}
		stored := ch.New
		if stored == nil {
			stored = ch.Old
		}
		if id := stored.Resource.GetId(); id.GetTenancy().GetNamespace() == c.round.namespace {
			recorded := change{key: id.GetName(), revision: ch.Revision, now: recordOf(ch.New), before: recordOf(ch.Old), group: group, at: now}
			if ch.New != nil {
				recorded.name = ch.New.Resource.GetMetadata()[metaName]
				if wrong := contentError(ch.New.Resource); wrong != "" {
					c.report("content", "a change: %s", wrong)
				}
			}
			c.changes = append(c.changes, recorded)
		}
	}
	if revision < last {
		c.report("revisions rise", "Next returned revision %d, after everything up to %d was reported", revision, last)
	}
	c.at = max(c.at, revision)
}

func (c *followLogger) report(check, format string, args ...any) {
	c.round.report(Violation{check, fmt.Sprintf("%s on handle %d: %s", c.name, c.handle, fmt.Sprintf(format, args...))})
}

// reportCompaction records that the log has a gap because history was compacted.
func (c *followLogger) reportCompaction(what string, err error) {
	c.hitCompaction = true
	from := lowerBound{since: c.since}
	for i := len(c.changes) - 1; i >= 0 && from.write == ""; i-- {
		from.write = c.changes[i].name
	}
	c.round.addCompaction(compactionReport{c.name, what, c.handle, from, c.round.run.now(), err})
}
