package inmem

import (
	"context"
	"fmt"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// ReadAt implements driver.Historian. It reads a copy of the tree, without the lock.
func (s *store) ReadAt(ctx context.Context, q *driver.HistoryQuery[position], add func(*driver.Version) error) (driver.HistoryPage[position], error) {
	tree, at, fence := s.snapshot()
	if q.RefuseMoved {
		if err := readError(ctx, fence); err != nil {
			return driver.HistoryPage[position]{}, err
		}
	}
	if q.At != nil {
		at = *q.At
	}
	past, err := readAt(ctx, tree, at, q, add)
	if err != nil || q.At == nil {
		return past, err // the copy holds the whole present state, even if history is compacted during the read
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return past, s.checkRetained(at) // history still holds the position, so nothing was dropped that the scan needed
}

func readAt(ctx context.Context, tree *btree.BTreeG[*item], at position, q *driver.HistoryQuery[position], add func(*driver.Version) error) (driver.HistoryPage[position], error) {
	past := driver.HistoryPage[position]{At: at}
	var err error
	var to *key.Key
	if q.To != nil {
		to = new(lowestKey(q.To))
	}
	added, size := 0, 0
	var v driver.Version // add retains nothing of it
	visitItems(tree, q.Filter, lowestKey(q.From), to, func(it *item) bool {
		if err = ctx.Err(); err != nil {
			return false
		}
		if it = it.stateAt(at); it == nil {
			return true
		}
		past.Count++
		if past.More || q.Limit > 0 && added == q.Limit || size >= q.MaxBytes() {
			past.More = true
			return q.Count
		}
		added++
		if q.KeysOnly {
			size += eventOverhead // about the size of a record without its resource
		} else {
			size += it.size
		}
		err = add(it.versionIn(&v))
		return err == nil
	})
	return past, err
}

// Before implements driver.Historian.
func (s *store) Before(_ context.Context, events []*driver.Event[position]) ([]*driver.Version, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	versions := make([]*driver.Version, len(events))
	for i, ev := range events {
		if err := s.checkRetained(ev.At - 1); err != nil {
			return nil, err
		}
		if ev.At > s.at {
			return nil, fmt.Errorf("%w: the store has no revision %d", storage.ErrCompacted, ev.At)
		}
		// Start at the change itself, because its key may have many newer versions.
		if before := s.history.items[ev.At-1-s.history.from].before.Load(); before != nil && !before.isDeletion() {
			versions[i] = before.version()
		}
	}
	return versions, nil
}

// Revisions implements driver.Historian.
func (s *store) Revisions(context.Context) (oldest, newest int64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return int64(s.history.from), int64(s.at), nil
}

// PositionAt implements driver.Historian.
func (s *store) PositionAt(_ context.Context, revision int64) (position, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if revision > int64(s.at) {
		return 0, fmt.Errorf("%w: the newest revision is %d, requested was %d", storage.ErrFutureRevision, s.at, revision)
	}
	if err := s.checkRetained(position(revision)); err != nil {
		return 0, err
	}
	return s.history.lastCommit(position(revision)), nil
}

// AwaitFinal implements driver.Historian.
func (s *store) AwaitFinal(ctx context.Context, revision int64) error {
	_, err := s.PositionAt(ctx, revision)
	return err
}

// RevisionOf implements driver.Historian.
func (*store) RevisionOf(at position) int64 { return int64(at) }

// Compact implements driver.Historian.
func (s *store) Compact(ctx context.Context, revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision > int64(s.at) {
		return fmt.Errorf("%w: the newest revision is %d", storage.ErrFutureRevision, s.at)
	}
	if revision <= int64(s.history.from) {
		return nil
	}
	return s.history.compact(ctx, s.history.lastCommit(position(revision)))
}
