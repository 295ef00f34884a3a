package backend

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/resourcepb"
)

// snapshotPage is the number of resources of a watch's snapshot that are read from history at a time and held until they are
// consumed.
const snapshotPage = 1000

// firstPageBytes is the number of bytes of the first page. It is held for as long as a watch is not read.
const firstPageBytes = 128 << 10

// snapshot opens the snapshot of a watch. It prefers the driver's copied snapshots over history.
func (b *Backend[P]) snapshot(ctx context.Context, called time.Time, f *driver.Filter) (snapshot driver.Snapshot, at P, err error) {
	if b.snapshotter != nil {
		return b.snapshotter.Snapshot(ctx, called, f)
	}
	return b.openHistorySnapshot(ctx, f)
}

// historySnapshot is the snapshot of a watch, read from history in pages while the watch is consumed. All pages are read at the
// position of the first one.
type historySnapshot[P any] struct {
	b        *Backend[P]
	filter   *driver.Filter
	at       P
	page     *snapshotRows
	next     int // index in the page's versions
	lifetime context.Context
	cancel   context.CancelFunc
	pageRead feed.BackgroundCall[*snapshotRows]
}

// snapshotRows is a page of a snapshot.
type snapshotRows struct {
	versions []driver.Version
	from     []byte // the start of the next page; nil on the last page
}

// openHistorySnapshot reads the first page.
func (b *Backend[P]) openHistorySnapshot(ctx context.Context, f *driver.Filter) (driver.Snapshot, P, error) {
	s := &historySnapshot[P]{b: b, filter: f}
	page, at, err := s.read(ctx, nil, nil, snapshotPage, nil)
	if err != nil {
		return nil, at, err
	}
	s.page, s.at = page, at
	s.lifetime, s.cancel = context.WithCancel(context.Background())
	return feed.Expiring(s), at, nil
}

// read reads a page at a position; if at is nil, it reads the first page at the present position. It may use the memory of the versions of an
// earlier page.
func (s *historySnapshot[P]) read(ctx context.Context, at *P, from []byte, limit int, memory []driver.Version) (*snapshotRows, P, error) {
	q := driver.HistoryQuery[P]{At: at, Consistency: storage.StrongConsistency, PrecedesWatch: true, RefuseMoved: at == nil, Filter: s.filter, Limit: limit}
	if at == nil {
		q.Bytes = firstPageBytes
	}
	prefix, _ := s.filter.Prefix()
	q.From, q.To = prefix, key.PrefixEnd(prefix)
	if from != nil {
		q.From = from
	}
	page := &snapshotRows{versions: memory[:0]}
	var last []byte
	// Each version is decoded when it is consumed, so a damaged resource ends the watch only after the resources before it.
	past, err := s.b.historian.ReadAt(ctx, &q, func(v *driver.Version) error {
		last = append(last[:0], v.Key...)
		copied := driver.Version{Resource: v.Resource}
		if v.Resource == nil {
			copied = *v
			copied.Key, copied.Version, copied.Data = bytes.Clone(v.Key), bytes.Clone(v.Version), bytes.Clone(v.Data)
		}
		page.versions = append(page.versions, copied)
		return nil
	})
	if err == nil && past.More {
		if len(page.versions) == 0 {
			return nil, past.At, errEmptyPage
		}
		page.from = keyAfter(last)
	}
	return page, past.At, err
}

var errEmptyPage = errors.New("the driver returned an empty page before the end of the listing")

// keyAfter returns the smallest key bytes greater than keyBytes.
func keyAfter(keyBytes []byte) []byte { return append(keyBytes[:len(keyBytes):len(keyBytes)], 0) }

// Next implements Snapshot.
func (s *historySnapshot[P]) Next(ctx context.Context) (*resourcepb.Resource, error) {
	for s.next == len(s.page.versions) {
		if s.page.from == nil {
			return nil, io.EOF
		}
		from := s.page.from
		memory := s.page.versions
		page, err := s.pageRead.Do(ctx, func() (*snapshotRows, error) { return s.readNext(from, memory) })
		if err != nil {
			return nil, err
		}
		s.page, s.next = page, 0
	}
	v := &s.page.versions[s.next]
	s.next++
	res, err := v.Decode()
	*v = driver.Version{}
	return res, err
}

// readNext reads a later page. It retries while the database is unreachable.
func (s *historySnapshot[P]) readNext(from []byte, memory []driver.Version) (page *snapshotRows, err error) {
	limit := snapshotPage
	err = s.b.feed.Persist(s.lifetime, func(ctx context.Context) error {
		ctx, done := s.b.withTimeout(ctx)
		defer done()
		var failure error
		page, _, failure = s.read(ctx, &s.at, from, limit, memory)
		limit = max(1, limit/2) // after a failure, a smaller page may arrive in time over a slow link
		return failure
	})
	return page, err
}

// Close implements Snapshot.
func (s *historySnapshot[P]) Close() {
	s.cancel()
	s.page, s.next = &snapshotRows{}, 0
}
