package dynamodb

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/spool"
	"github.com/ashlar-dev/storage/resourcepb"
)

// snapshotMemory is how much of a snapshot that waits for its watch is held in memory; the rest goes to a temporary file.
const snapshotMemory = 4 << 20

// Snapshot implements driver.Snapshotter: a strong list. Each resource in it is as it was at some moment between the call and its
// return, and the changes that follow are exactly those after that moment, key by key. What was acknowledged before the call is before
// the position.
func (b *handle) Snapshot(ctx context.Context, called time.Time, f *driver.Filter) (driver.Snapshot, *position, error) {
	if err := b.source.reader().prove(ctx, called); err != nil {
		return nil, nil, err
	}
	at := *b.source.reader().position()
	snap, err := b.snapshot(ctx, *f, &at)
	return snap, &at, err
}

// snapshot reads what the filter matches, and notes in at which states it showed.
//
// A record of a state that the scan showed may come later in the stream than at, and so may those of the states before it. The
// counts of the stamps tell them, for deleted keys those of the tombstones. A key that has neither was deleted so long ago that at
// is after it: that is what the time since at.asOf is checked for.
func (b *handle) snapshot(ctx context.Context, filter driver.Filter, at *position) (driver.Snapshot, error) {
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

// snapshot is a driver.Snapshot of spooled rows.
type snapshot struct {
	rows   *spool.Spool
	reader *spool.Reader
}

// Next implements driver.Snapshot.
func (s *snapshot) Next(context.Context) (*resourcepb.Resource, error) {
	row, err := s.reader.Next()
	if err != nil {
		return nil, err
	}
	version, data, err := cutText(row)
	if err != nil {
		return nil, fmt.Errorf("read a snapshot: %w", err)
	}
	return codec.Decode(data, version)
}

// Close implements driver.Snapshot.
func (s *snapshot) Close() { _ = s.rows.Close() }
