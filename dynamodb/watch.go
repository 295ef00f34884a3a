package dynamodb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/internal/spool"
	"github.com/ashlar-dev/storage/resourcepb"
)

// snapshotMemory is how much of a snapshot that waits for its watch is held in memory; the rest goes to a temporary file.
const snapshotMemory = 4 << 20

// WatchList implements storage.Backend. The snapshot is a strong list. Each resource in it is as it was at some moment between
// the call and its return, and the changes that follow are exactly those after that moment, key by key.
func (b *Backend) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	filter, err := check.Filter(typ, tenancy, namePrefix)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return nil, err
	}
	defer done()
	mark, at, err := b.here(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch %s/%s: %w", typ.Group, typ.Kind, err)
	}
	snap, err := b.snapshot(ctx, filter, at)
	if err != nil {
		mark.Release()
		return nil, fmt.Errorf("watch %s/%s: %w", typ.Group, typ.Kind, err)
	}
	return b.feed.Watch(mark, filter, snap, at), nil
}

// here marks the feed's end and the position that belongs to it. What was acknowledged before the call is before the position.
func (b *Backend) here(ctx context.Context) (feed.Mark[*position], *position, error) {
	for called := time.Now(); ; {
		mark, at, err := b.hereSince(ctx, called)
		if !errors.Is(err, errNotRead) {
			return mark, at, err
		}
		// The feed begins anew, or says why it does not.
		if !sleep(ctx, time.Millisecond) {
			return mark, nil, inconsistent(ctx, err)
		}
	}
}

func (b *Backend) hereSince(ctx context.Context, called time.Time) (feed.Mark[*position], *position, error) {
	first, err := b.feed.Start(ctx)
	if err != nil {
		return feed.Mark[*position]{}, nil, err
	}
	defer first.Release()
	if err := b.source.reader().prove(ctx, called); err != nil {
		return feed.Mark[*position]{}, nil, err
	}
	mark, err := b.feed.Start(ctx)
	if err != nil {
		return feed.Mark[*position]{}, nil, err
	}
	at := *b.source.reader().position()
	return mark, &at, nil
}

// snapshot reads what the filter matches, and notes in at which states it showed.
//
// A record of a state that the scan showed may come later in the stream than at, and so may those of the states before it. The
// counts of the stamps tell them, for deleted keys those of the tombstones. A key that has neither was deleted so long ago that at
// is after it: that is what the time since at.asOf is checked for.
func (b *Backend) snapshot(ctx context.Context, filter key.Filter, at *position) (feed.Snapshot, error) {
	rows, shown := spool.New(snapshotMemory), newShown()
	err := b.scan(ctx, storage.StrongConsistency, scanRange{filter: filter}, func(h *head) (bool, error) {
		if err := shown.add(h.key, h.stamp.count); err != nil || !h.live {
			return true, err
		}
		packed, err := b.gather(ctx, h)
		if err != nil {
			return false, err
		}
		data, err := unpack(packed)
		if err != nil {
			return false, h.damaged(err)
		}
		if _, err := h.unpacked(data); err != nil { // whose key nobody knows later
			return false, err
		}
		version := h.stamp.version()
		row := binary.AppendUvarint(make([]byte, 0, len(data)+len(version)+4), uint64(len(version)))
		return true, rows.Append(append(append(row, version...), data...))
	})
	if took := b.clock.now().Sub(at.asOf); err == nil && took > tombstoneLife/2 {
		err = fmt.Errorf("%w: reading the snapshot took %v, and what was deleted meanwhile is not known for longer than %v", storage.ErrInconsistent, took, tombstoneLife)
	}
	if err == nil {
		err = rows.Seal()
	}
	if err == nil {
		err = shown.rows.Seal()
	}
	if err != nil {
		_ = rows.Close()
		shown.drop()
		return nil, err
	}
	shown.until = b.source.reader().ask()
	at.joined = shown
	return &snapshot{rows: rows, reader: rows.Read(0)}, nil
}

// snapshot is a feed.Snapshot of spooled rows.
type snapshot struct {
	rows   *spool.Spool
	reader *spool.Reader
}

// Next implements feed.Snapshot.
func (s *snapshot) Next(context.Context) (*resourcepb.Resource, error) {
	row, err := s.reader.Next()
	if err != nil {
		return nil, err
	}
	version, data, err := cutText(row)
	if err != nil {
		return nil, fmt.Errorf("read a snapshot: %w", err)
	}
	return message.Decode(data, version)
}

// Close implements feed.Snapshot.
func (s *snapshot) Close() { _ = s.rows.Close() }

// WatchFrom implements storage.Resumer. A cursor is a position in each shard of the table's stream, which remembers 24 hours.
func (b *Backend) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, text string) (storage.Watch, error) {
	filter, badFilter := check.Filter(typ, tenancy, namePrefix)
	from, badCursor := b.parseCursor(text)
	ctx, done, err := b.begin(ctx, badFilter, badCursor)
	if err != nil {
		return nil, err
	}
	defer done()
	w, err := b.feed.Resume(ctx, filter, from, text)
	if err != nil {
		return nil, fmt.Errorf("watch %s/%s: %w", typ.Group, typ.Kind, err)
	}
	return w, nil
}

// parseCursor undoes position.encode of a cursor.
func (b *Backend) parseCursor(text string) (*position, error) {
	payload, err := cursor.Decode(cursor.Watch, b.id, text)
	if err != nil {
		return nil, err
	}
	from, err := decodePosition(payload)
	if err != nil {
		return nil, fmt.Errorf("%w: this is no cursor", storage.ErrInvalid)
	}
	return from, nil
}
