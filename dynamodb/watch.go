package dynamodb

import (
	"context"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/spill"
	"github.com/ashlar-dev/storage/resourcepb"
)

// snapshotMemory is how much of a snapshot that waits for its watch is held in memory; the rest goes to a temporary file.
const snapshotMemory = 4 << 20

// Snapshot implements driver.Snapshotter: a strong list. Each resource in it is as it was at some moment between the call and its
// return, and the changes that follow are exactly those after that moment, key by key. What was acknowledged before the call is before
// the position.
func (l *lister) Snapshot(ctx context.Context, called time.Time, f *driver.Filter) (driver.Snapshot, *streams.Position, error) {
	at, err := l.source.Passed(ctx, called)
	if err != nil {
		return nil, nil, err
	}
	rows, baseline := spill.New(snapshotMemory), streams.NewBaseline()
	if err := l.snapshot(ctx, *f, at, rows, baseline); err != nil {
		_ = rows.Close()
		baseline.Close()
		return nil, nil, err
	}
	return &snapshot{rows: rows, reader: rows.Read(0)}, l.source.Join(at, baseline), nil
}

// snapshot reads what the filter matches into rows, and at which states it showed each key into baseline.
//
// A record of a state that the scan showed may come later in the stream than at, and so may those of the states before it. The
// counts of the stamps tell them, for deleted keys those of the tombstones. A key that has neither was deleted so long ago that at
// is after it: that is what the time since at is checked for.
func (l *lister) snapshot(ctx context.Context, filter driver.Filter, at *streams.Position, rows *spill.Spool, baseline *streams.Baseline) error {
	err := l.scan(ctx, scanRange{filter: filter, consistency: storage.StrongConsistency}, func(h *head) (bool, error) {
		if err := baseline.Add(h.key, h.stamp.count); err != nil || !h.live {
			return true, err
		}
		packed, err := l.reader.gather(ctx, h)
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
		row := append(make([]byte, 0, 1+len(version)+len(data)), byte(len(version)))
		return true, rows.Append(append(append(row, version...), data...))
	})
	if err != nil {
		return err
	}
	if took := l.reader.table.clock.Now().Sub(at.AsOf()); took > tombstoneLife/2 {
		return fmt.Errorf("%w: reading the snapshot took %v, and what was deleted meanwhile is not known for longer than %v", storage.ErrInconsistent, took, tombstoneLife)
	}
	if err := rows.Seal(); err != nil {
		return err
	}
	return baseline.Seal()
}

// snapshot is a driver.Snapshot of spooled rows: the length of the version, the version, the data.
type snapshot struct {
	rows   *spill.Spool
	reader *spill.Reader
}

// Next implements driver.Snapshot.
func (s *snapshot) Next(context.Context) (*resourcepb.Resource, error) {
	row, err := s.reader.Next()
	if err != nil {
		return nil, err
	}
	end := 1 + int(row[0])
	return codec.Decode(row[end:], string(row[1:end]))
}

// Close implements driver.Snapshot.
func (s *snapshot) Close() { _ = s.rows.Close() }
