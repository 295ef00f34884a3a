package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/telemetry"
)

// historian implements history.Historian over a Backend.
type historian[P any] struct{ b *Backend[P] }

var _ history.Historian = historian[int]{}

// Revisions implements history.Historian.
func (h historian[P]) Revisions(ctx context.Context) (oldest, newest int64, err error) {
	ctx, call, err := h.b.begin(ctx, telemetry.Revisions)
	if err != nil {
		return 0, 0, err
	}
	defer call.end(&err)
	newest, err = unlessMoved(ctx, h.b.readMove, func(ctx context.Context) (newest int64, err error) {
		oldest, newest, err = h.b.historian.Revisions(ctx)
		return newest, err
	})
	if err != nil {
		return 0, 0, callError("ask for the revisions", nil, err)
	}
	return oldest, newest, nil
}

// Scan implements history.Historian.
func (h historian[P]) Scan(ctx context.Context, span history.Range, opts history.ScanOptions) (_ history.ScanResult, err error) {
	from, to, badRange := check.Range(span)
	ctx, call, err := h.b.begin(ctx, telemetry.Scan, badRange, check.Scan(opts))
	if err != nil {
		return history.ScanResult{}, err
	}
	defer call.end(&err)
	q := driver.HistoryQuery[P]{
		Consistency: storage.StrongConsistency, Final: true, RefuseMoved: opts.Revision == 0,
		From: boundary(from), To: boundary(to), Limit: min(opts.Limit, maxRecords), Bytes: opts.Bytes, KeysOnly: opts.KeysOnly, Count: opts.Count,
	}
	if single(&q) {
		q.Key = from
	}
	scan, err := h.scan(ctx, q, opts.Revision)
	if err != nil {
		return history.ScanResult{}, callError("scan", nil, err)
	}
	if n := len(scan.Records); scan.More && n > 0 {
		after := key.Of(scan.Records[n-1].Resource.GetId())
		after.Name += "\x01" // names contain no NUL, so no key lies between
		scan.Rest = history.Range{From: after.ID("", ""), To: codec.CloneID(span.To)}
	}
	return scan, nil
}

// single reports whether a query covers only its first key. No key lies between the bytes of a key and the same bytes with a 0 or 1
// appended.
func single[P any](q *driver.HistoryQuery[P]) bool {
	n := len(q.From)
	return n > 0 && len(q.To) == n+1 && q.To[n] <= 1 && bytes.HasPrefix(q.To, q.From)
}

// maxRecords is more than any result contains. It prevents overflows in drivers that calculate with the limit.
const maxRecords = 1 << 24

func boundary(k *driver.Key) []byte {
	if k == nil {
		return nil
	}
	return k.Bytes()
}

func (h historian[P]) scan(ctx context.Context, q driver.HistoryQuery[P], revision int64) (history.ScanResult, error) {
	if at, known := h.b.positions.get(revision); known {
		q.At = &at
		scan, err := h.scanAt(ctx, q, revision)
		if errors.Is(err, storage.ErrCompacted) {
			h.b.positions.remove(revision) // if commits were lost, the revision may be a future one now
		}
		return scan, err
	}
	if revision != 0 {
		at, err := h.b.historian.PositionAt(ctx, revision)
		if err != nil {
			return history.ScanResult{}, err
		}
		q.At = &at
	}
	return h.scanAt(ctx, q, revision)
}

// scanAt scans at the position of the query, or at the present one.
func (h historian[P]) scanAt(ctx context.Context, q driver.HistoryQuery[P], revision int64) (scan history.ScanResult, err error) {
	past, err := h.b.historian.ReadAt(ctx, &q, func(v *driver.Version) error {
		r, err := recordOf(v, q.KeysOnly)
		if err == nil {
			scan.Records = append(scan.Records, r)
		}
		return err
	})
	scan.Revision, scan.Count, scan.More = revision, past.Count, past.More
	if revision == 0 {
		scan.Revision = h.b.historian.RevisionOf(past.At)
		if err == nil && q.Final && past.More {
			h.b.positions.put(scan.Revision, past.At)
		}
	}
	return scan, err
}

// recordOf returns a version as a record, which belongs to the caller.
func recordOf(v *driver.Version, keysOnly bool) (history.Record, error) {
	r := history.Record{Created: v.CreateRevision, Modified: v.ModRevision, Writes: v.Writes}
	if !keysOnly {
		var err error
		r.Resource, err = v.Decode()
		return r, err
	}
	k, err := key.Parse(v.Key)
	r.Resource = &resourcepb.Resource{Id: k.ID("", ""), Version: string(v.Version)}
	return r, err
}

// Compact implements history.Historian.
func (h historian[P]) Compact(ctx context.Context, revision int64) (err error) {
	ctx, call, err := h.b.begin(ctx, telemetry.Compact, check.Revision(revision))
	if err != nil {
		return err
	}
	defer call.end(&err)
	if err := h.b.historian.Compact(ctx, revision); err != nil {
		return callError(fmt.Sprintf("compact up to revision %d", revision), nil, err)
	}
	return nil
}
