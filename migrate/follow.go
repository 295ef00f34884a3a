package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

const (
	// maxEvents and maxEventBytes limit a batch, and thereby memory.
	maxEvents     = 1000
	maxEventBytes = 16 << 20
	// gather is how long a batch waits for more events after its first.
	gather = 2 * time.Millisecond
	// tick is the interval of other checks while a watch has no events.
	tick = 250 * time.Millisecond
	// journalEvery is the interval of progress records, which are also the heartbeats that let two tools detect each other.
	journalEvery = time.Second
)

// change is the effect of a batch of events on one key: the state after the last of them, and every uid of the key in the batch.
type change struct {
	id   *resourcepb.ID
	want *resourcepb.Resource // nil: deleted
	uids []string
}

func (c *change) knows(uid string) bool { return slices.Contains(c.uids, uid) }

// follower applies the changes of the source.
type follower struct {
	m                   *migration
	watch               storage.Watch
	marks               storage.Bookmarker // the watch, if it is one
	cursor              string             // everything before it has been applied
	bookmarkRequestedAt time.Time          // when the outstanding bookmark was requested; zero for none
	asOf                time.Time          // everything before this time has been applied; zero if nothing is proven
	journalWrittenAt    time.Time          // when the journal was last written
	lastEventAt         time.Time          // when the watch last returned an event
}

// follow applies the source's changes after cursor until done, which is called after each batch, returns true. asOf is the time
// whose state the target is already known to have. follow returns the position that it reached; the error matches
// storage.ErrCompacted if history was deleted.
func (m *migration) follow(ctx context.Context, cursor string, asOf time.Time, done func(*follower) bool) (string, error) {
	f := &follower{m: m, cursor: cursor, asOf: asOf, journalWrittenAt: time.Now(), lastEventAt: time.Now()}
	defer f.close()
	for {
		err := f.run(ctx, done)
		if err == nil && ctx.Err() == nil {
			if err = m.noteCursor(ctx, f.cursor); ctx.Err() == nil {
				return f.cursor, err
			}
		}
		if ctx.Err() != nil {
			// Record the position, so that applied changes are not applied again.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			return f.cursor, errors.Join(err, m.noteCursor(ctx, f.cursor))
		}
		if errors.Is(err, storage.ErrMoved) {
			return f.cursor, m.whyMoved(ctx, err)
		}
		if !errors.Is(err, storage.ErrWatchClosed) || errors.Is(err, storage.ErrCompacted) || errors.Is(err, storage.ErrClosed) {
			return f.cursor, err
		}
		// The watch has ended, but its history exists: continue from its position.
		if time.Since(f.lastEventAt) > m.o.Timeout {
			return f.cursor, err
		}
		m.stats.warn(err)
		f.close()
		select {
		case <-time.After(tick):
		case <-ctx.Done():
		}
	}
}

// whyMoved returns the error of a source that moved while this process followed it. Either another migration moved the source, or another
// process completed this migration.
func (m *migration) whyMoved(ctx context.Context, moved error) error {
	s, err := m.gate.state(ctx)
	if err == nil {
		err = m.gate.elsewhere(s)
	}
	if err == nil {
		err = m.gate.mine(ctx)
	}
	if err == nil {
		err = moved
	}
	return err
}

func (f *follower) close() {
	if f.watch != nil {
		f.watch.Close()
		f.watch, f.marks, f.bookmarkRequestedAt = nil, nil, time.Time{}
	}
}

// run continues until done returns true or a call fails. It can be called again.
func (f *follower) run(ctx context.Context, done func(*follower) bool) error {
	if f.watch == nil {
		err := f.m.try.do(ctx, "watch", func(ctx context.Context) (err error) {
			f.watch, err = f.m.resumer.WatchFrom(ctx, everything, anyTenancy(), "", f.cursor)
			return err
		})
		if err != nil {
			f.watch = nil
			return fmt.Errorf("source: watch from the recorded position: %w", err)
		}
		f.marks, _ = f.watch.(storage.Bookmarker)
	}
	for {
		if err := f.ask(ctx); err != nil {
			f.close()
			return err
		}
		b, err := f.collect(ctx)
		if err != nil {
			f.close()
			return err
		}
		if err := f.m.applyAll(ctx, b.changes); err != nil {
			// The watch has advanced, so its events must be returned again.
			f.close()
			return err
		}
		f.cursor = f.watch.Cursor()
		if b.events > 0 || b.bookmarkArrived {
			f.lastEventAt = time.Now()
		}
		if b.bookmarkArrived {
			f.asOf, f.bookmarkRequestedAt = f.bookmarkRequestedAt, time.Time{}
		}
		f.m.stats.events.Add(int64(b.events))
		f.m.stats.countFollowed(f.asOf)
		if time.Since(f.journalWrittenAt) >= journalEvery {
			if err := f.m.noteCursor(ctx, f.cursor); err != nil {
				return err
			}
			f.journalWrittenAt = time.Now()
		}
		if done(f) {
			return nil
		}
	}
}

// ask requests a bookmark, one at a time: when it arrives, everything acknowledged by now has been applied. A missing bookmark
// proves nothing.
func (f *follower) ask(ctx context.Context) error {
	if f.marks == nil {
		return nil
	}
	now := time.Now()
	if !f.bookmarkRequestedAt.IsZero() {
		if last := latest(f.bookmarkRequestedAt, f.lastEventAt); now.Sub(last) > f.m.o.Timeout {
			return fmt.Errorf("source: %w: a watch has returned neither an event nor a bookmark for %v", storage.ErrInconsistent,
				now.Sub(last).Round(time.Second))
		}
		return nil
	}
	often := tick
	if f.m.o.CutoverLag > 0 {
		often = min(often, max(f.m.o.CutoverLag/4, 10*time.Millisecond))
	}
	if now.Sub(f.asOf) < often {
		return nil
	}
	if err := f.marks.Bookmark(ctx); err != nil {
		return fmt.Errorf("source: bookmark: %w", err)
	}
	f.bookmarkRequestedAt = now
	return nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lag returns the maximum age of the target's state, or the maximum duration if nothing is proven.
func (f *follower) lag() time.Duration { return age(f.asOf) }

// hasBaseline reports whether everything before the start of the following phase has been applied.
func (f *follower) hasBaseline() bool { return !f.asOf.IsZero() }

// batch is a set of events that a watch returned together.
type batch struct {
	changes         map[key.Key]*change
	events          int
	bookmarkArrived bool // the requested bookmark has arrived, after the events
}

// collect waits for events, a tick at most, and returns their effects by key.
func (f *follower) collect(ctx context.Context) (batch, error) {
	first, cancel := context.WithTimeout(ctx, tick)
	defer cancel()
	ev, err := f.watch.Next(first)
	rest, cancelRest := context.WithTimeout(ctx, gather)
	defer cancelRest()
	b := batch{changes: make(map[key.Key]*change)}
	bytes := 0
	for ; err == nil; ev, err = f.watch.Next(rest) {
		if ev.GetBookmark() != nil {
			b.bookmarkArrived = true
			return b, nil
		}
		b.events++
		res := ev.GetUpsert().GetResource()
		if res == nil {
			res = ev.GetDelete().GetResource()
		}
		if res == nil {
			return batch{}, errors.New("source: the watch returned an event of an unknown kind")
		}
		bytes += codec.Size(res)
		k := key.Of(res.GetId())
		c := b.changes[k]
		if c == nil {
			c = &change{}
			b.changes[k] = c
		}
		c.id, c.want = res.GetId(), ev.GetUpsert().GetResource()
		if uid := res.GetId().GetUid(); !c.knows(uid) {
			c.uids = append(c.uids, uid)
		}
		if b.events >= maxEvents || bytes >= maxEventBytes {
			return b, nil
		}
	}
	switch {
	case errors.Is(err, storage.ErrWatchClosed):
		return batch{}, fmt.Errorf("source: %w", err)
	case ctx.Err() != nil:
		return batch{}, ctx.Err()
	case first.Err() != nil || rest.Err() != nil:
		return b, nil
	}
	return batch{}, fmt.Errorf("source: %w", err)
}

// applyAll applies the changes to the target, changes of different keys in parallel. Applying them again is harmless.
func (m *migration) applyAll(ctx context.Context, changes map[key.Key]*change) error {
	if len(changes) == 0 {
		return nil
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(m.o.Parallel)
	for _, c := range changes {
		if err := m.pace(groupCtx, 1); err != nil {
			return errors.Join(err, group.Wait())
		}
		group.Go(func() error { return m.apply(groupCtx, c) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return m.excludeLateChanges(ctx)
}

func (m *migration) apply(ctx context.Context, c *change) error {
	if c.want == nil {
		did, err := m.drop(ctx, c.id, nil, c.knows)
		if did {
			m.stats.deletions.Add(1)
		}
		return err
	}
	have, err := m.targetResource(ctx, c.want.GetId())
	if err != nil {
		return err
	}
	did, err := m.put(ctx, c.want, have, func(have *resourcepb.Resource) (verdict, error) {
		if c.knows(have.GetId().GetUid()) {
			return replace, nil
		}
		return m.conflictDuringCopy(have)
	}, true)
	m.stats.countOutcome(did, codec.Size(c.want))
	return err
}

// targetResource returns the stored resource of the target.
func (m *migration) targetResource(ctx context.Context, id *resourcepb.ID) (have *resourcepb.Resource, err error) {
	err = m.try.do(ctx, "read from the target", func(ctx context.Context) error {
		have, err = m.readTarget(ctx, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("target: read %v: %w", key.Of(id), err)
	}
	return have, nil
}

// conflictDuringCopy decides about a resource with another uid in the target. A target that was empty contains only resources of
// the migration, so the resource is an earlier or a later state of the source's, and is replaced. With Merge it may be unrelated,
// which only the end shows. Until then it is left to the following changes, which replace or delete it if it is the migration's.
func (m *migration) conflictDuringCopy(*resourcepb.Resource) (verdict, error) {
	if m.o.Into == Merge {
		return leave, nil
	}
	return replace, nil
}

// conflictAtCutover decides about a resource with another uid after the last change of the source has been applied.
func (m *migration) conflictAtCutover(*resourcepb.Resource) (verdict, error) {
	if m.o.Into == Merge {
		return leave, ErrConflict
	}
	return replace, nil
}

// historyLost returns the error of a migration into a target with other contents when the source's history was deleted.
func (m *migration) historyLost(err error) error {
	return fmt.Errorf("%w; deletions in the source cannot be distinguished from other contents of the target: %w", err, errStuck)
}
