package backend

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/telemetry"
)

// Follow implements history.Historian.
func (h historian[P]) Follow(ctx context.Context, span history.Range, after int64) (_ history.Follower, err error) {
	from, to, badRange := check.Range(span)
	ctx, call, err := h.b.begin(ctx, telemetry.Follow, badRange, check.Revision(after))
	if err != nil {
		return nil, err
	}
	defer call.end(&err)
	at, err := h.b.historian.PositionAt(ctx, after)
	if err != nil {
		return nil, callError("follow", nil, err)
	}
	followed, err := h.b.feed.Follow(ctx, surrounding(from, to), at)
	switch {
	case errors.Is(err, storage.ErrClosed):
		return nil, storage.ErrClosed
	case err != nil:
		return nil, callError("follow", nil, err)
	}
	return &follower[P]{Follower: followed, h: h.b.historian, from: from, to: to}, nil
}

// surrounding returns a filter that matches everything between two keys. If the keys have parts in common, it matches little else.
func surrounding(from, to *driver.Key) driver.Filter {
	f := driver.Filter{Group: storage.Wildcard, Kind: storage.Wildcard, Partition: storage.Wildcard, Namespace: storage.Wildcard}
	if from == nil || to == nil || from.Group != to.Group || from.Group == "" {
		return f
	}
	// The kind alone may be a wildcard; the group only together with the kind.
	f.Group = from.Group
	if from.Kind != to.Kind || from.Kind == "" {
		return f
	}
	f.Kind = from.Kind
	if from.Partition != to.Partition {
		return f
	}
	f.Partition = from.Partition
	if from.Namespace == to.Namespace {
		f.Namespace = from.Namespace
	}
	return f
}

// follower is a feed's Follower, limited to a range.
type follower[P any] struct {
	*feed.Follower[P]
	h             driver.Historian[P]
	from, to      *driver.Key
	pendingCommit []history.Change // the changes of an incomplete commit
	revision      int64            // the last one that Next returned
}

// Next implements history.Follower.
func (f *follower[P]) Next(ctx context.Context) ([]history.Change, int64, error) {
	for {
		d, err := f.Follower.Next(ctx)
		switch {
		case err != nil:
			return nil, 0, err
		case d.Event == nil:
			return nil, f.advance(d.At, 0), nil
		}
		if f.within(&d.Event.Key) {
			f.pendingCommit = append(f.pendingCommit, changeOf(d))
		}
		if d.More || len(f.pendingCommit) == 0 {
			continue
		}
		changes := f.pendingCommit
		f.pendingCommit = nil
		last := &changes[len(changes)-1]
		last.More = false
		return changes, f.advance(d.At, last.Revision), nil
	}
}

// advance returns the last revision whose changes in the range have all been returned. If the rest of a commit is outside the range, the feed
// has a position inside the commit, also when it returns a bookmark, but the follower has returned everything up to the commit's revision.
func (f *follower[P]) advance(at P, changed int64) int64 {
	f.revision = max(f.revision, f.h.RevisionOf(at), changed)
	return f.revision
}

func (f *follower[P]) within(k *driver.Key) bool {
	return (f.from == nil || k.Compare(*f.from) >= 0) && (f.to == nil || k.Compare(*f.to) < 0)
}

// changeOf returns a change of a feed's follower as a copy that belongs to the caller. Other followers share the original.
func changeOf[P any](d feed.Change[P]) history.Change {
	c := history.Change{Revision: d.Event.Revision, More: true}
	if v := d.Before; v != nil {
		c.Old = &history.Record{Resource: v.Resource, Created: v.CreateRevision, Modified: v.ModRevision, Writes: v.Writes}
	}
	if ev := d.Event; !ev.Delete {
		c.New = &history.Record{Resource: codec.Clone(ev.Resource), Created: ev.CreateRevision, Modified: ev.Revision, Writes: ev.Writes}
	}
	return c
}
