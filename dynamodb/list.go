package dynamodb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/dynamodb/internal/spill"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// lister reads the resources that match a filter: all at once, page by page, or as the snapshot of a watch.
type lister struct {
	reader   *reader
	registry *registry
	source   streams.Stream

	pageItems int      // limit of examined items in a page
	pageBytes int      // limit of the bytes of resources in a page, exceeded by one resource at most
	sizes     sync.Map // of storage.UnversionedType: int, the size of its resources in the last page, in bytes
}

// List implements driver.Driver. Each resource is read with the requested consistency, but DynamoDB has no snapshots: a resource
// written during the call may be in the list or not.
func (l *lister) List(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	err := l.scan(ctx, scanRange{filter: *f, consistency: consistency}, func(h *headItem) (bool, error) {
		if !h.live {
			return true, nil
		}
		res, err := l.reader.resourceOf(ctx, h)
		if res != nil && err == nil {
			err = rows.AddResource(res)
		}
		return true, err
	})
	if err == nil && consistency == storage.StrongConsistency {
		err = l.reader.lease.checkMoved(ctx)
	}
	return err
}

// scanRange is the range of a scan: a filter, and the key before the scan's first key.
type scanRange struct {
	filter      key.Filter
	consistency storage.ReadConsistency
	after       *key.Key
	limit       int // number of items in the first answer, 0 for DynamoDB's maximum; later answers grow
	// onMismatch, if set, is called with each key that does not match, and reports whether to continue.
	onMismatch func(key.Key) bool
}

// scan visits the heads that match the filter, including tombstones, in order, until visit returns false.
func (l *lister) scan(ctx context.Context, r scanRange, visit func(*headItem) (bool, error)) error {
	types, err := l.registry.types(ctx, r.filter)
	if err != nil {
		return err
	}
	for _, t := range types {
		if r.after != nil && strings.Compare(t.Group+"\x00"+t.Kind, r.after.Group+"\x00"+r.after.Kind) < 0 {
			continue
		}
		one := r
		one.filter.Group, one.filter.Kind = t.Group, t.Kind
		if r.after != nil && (r.after.Group != t.Group || r.after.Kind != t.Kind) {
			one.after = nil
		}
		more, err := l.scanType(ctx, one, t, visit)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// scanType scans one type, whose buckets it merges. It reports whether to continue.
func (l *lister) scanType(ctx context.Context, r scanRange, t listedType, visit func(*headItem) (bool, error)) (bool, error) {
	var scans []*bucketScan
	var g errgroup.Group
	g.SetLimit(maxBucketReads)
	start := func(buckets []int) {
		limit := r.limit
		if n := len(scans) + len(buckets); n > 1 && limit > 0 {
			// The next page reads the rest again. A bucket without the next key is read once more.
			limit = limit*3/(2*n) + 4
			if size, known := l.sizes.Load(t.UnversionedType); known {
				limit = min(limit, l.pageBytes*3/(2*n*size.(int))+2)
			}
		}
		for _, bucket := range buckets {
			s := &bucketScan{reader: l.reader, filter: r.filter, consistency: r.consistency, bucket: bucket, limit: limit}
			s.prepare(r.after)
			scans = append(scans, s)
			g.Go(func() error { return s.fill(ctx) })
		}
	}
	start(t.buckets.without(bucketSet{}))
	var err error
	if !t.complete {
		var used bucketSet
		if used, err = l.registry.usedBuckets(ctx, t.UnversionedType); err == nil {
			start(used.without(t.buckets))
		}
	}
	if failed := g.Wait(); err == nil {
		err = failed
	}
	if err != nil {
		return false, err
	}
	for {
		var first *bucketScan
		for _, s := range scans {
			if len(s.heads) > 0 && (first == nil || s.heads[0].key.Compare(first.heads[0].key) < 0) {
				first = s
			}
		}
		if first == nil {
			return true, nil
		}
		h := first.heads[0]
		first.heads = first.heads[1:]
		more, err := true, error(nil)
		if f := &r.filter; first.exact || f.Match(&h.key) {
			more, err = visit(h)
		} else if r.onMismatch != nil {
			more = r.onMismatch(h.key)
		}
		if err == nil && more && len(first.heads) == 0 {
			err = first.fill(ctx)
		}
		if err != nil || !more {
			return false, err
		}
	}
}

// maxBucketReads limits the concurrent reads of a list.
const maxBucketReads = 32

// defaultPageItems ends a page after this many examined items, including tombstones and items that do not match.
const defaultPageItems = 20_000

// Page implements driver.Pager. DynamoDB has no snapshots: a page contains each resource as of its own read. The pages follow the
// order of the keys, so a resource that exists unchanged throughout is in exactly one of them.
func (l *lister) Page(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, from []byte, limit int) (driver.ListedPage[*streams.Position], error) {
	listing := &listing{filter: *f, consistency: consistency}
	var err error
	if from != nil {
		err = listing.decode(from)
	} else {
		listing.at, err = l.source.Before(ctx)
	}
	if err != nil {
		return driver.ListedPage[*streams.Position]{}, err
	}
	page := driver.ListedPage[*streams.Position]{At: listing.at}
	size, looked := 0, 0
	r := scanRange{filter: *f, consistency: listing.consistency, after: listing.after, limit: min(limit+1, maxLimit)}
	r.onMismatch = func(k key.Key) bool {
		listing.after = &k
		if looked++; looked < l.pageItems && len(page.Resources) < limit {
			return true
		}
		page.Next = listing.encode()
		return false
	}
	err = l.scan(ctx, r, func(h *headItem) (bool, error) {
		full := len(page.Resources) == limit && h.live || size >= l.pageBytes || looked >= l.pageItems
		if full {
			page.Next = listing.encode()
			return false, nil
		}
		looked++
		listing.after = &h.key
		if !h.live {
			return true, nil
		}
		res, err := l.reader.resourceOf(ctx, h)
		if res != nil {
			page.Resources = append(page.Resources, res)
			size += codec.Size(res)
		}
		if damaged := (*storage.DamagedError)(nil); errors.As(err, &damaged) {
			page.Damaged, err = append(page.Damaged, damaged), nil
		}
		return true, err
	})
	if n := len(page.Resources); n > 0 && f.Kind != storage.Wildcard {
		l.sizes.Store(storage.UnversionedType{Group: f.Group, Kind: f.Kind}, max(size/n, 1))
	}
	if err == nil && listing.consistency == storage.StrongConsistency {
		err = l.reader.lease.checkMoved(ctx)
	}
	return page, err
}

// listing is the state of a listing between two pages. A continue token contains all of it except the filter, so any process can
// continue, at any time.
type listing struct {
	filter      driver.Filter
	consistency storage.ReadConsistency
	after       *driver.Key
	at          *streams.Position
}

func (l *listing) encode() []byte {
	b := protowire.AppendBytes(nil, []byte{byte(l.consistency)})
	b = protowire.AppendBytes(b, l.after.Bytes())
	return protowire.AppendBytes(b, l.at.Encode())
}

func (l *listing) decode(from []byte) error {
	invalid := fmt.Errorf("%w: not a continue token", storage.ErrInvalid)
	var fields [3][]byte
	for i := range fields {
		field, n := protowire.ConsumeBytes(from)
		if n < 0 {
			return invalid
		}
		fields[i], from = field, from[n:]
	}
	after, badKey := key.Parse(fields[1])
	at, badPosition := streams.DecodePosition(fields[2])
	prefix, _ := l.filter.Prefix() // a page may end after a key that does not match
	if badKey != nil || badPosition != nil || !bytes.HasPrefix(fields[1], prefix) || len(fields[0]) != 1 ||
		storage.ReadConsistency(fields[0][0]) > storage.StrongConsistency {
		return invalid
	}
	l.consistency, l.after, l.at = storage.ReadConsistency(fields[0][0]), &after, at
	return nil
}

// snapshotMemory is the part of an unread snapshot that is held in memory; the rest is in a temporary file.
const snapshotMemory = 4 << 20

// Snapshot implements driver.Snapshotter by a strong list. Each resource was read at some moment between the call and its return,
// and the changes that follow are exactly those after that moment, key by key. The position includes everything that was
// acknowledged before the call.
func (l *lister) Snapshot(ctx context.Context, called time.Time, f *driver.Filter) (driver.Snapshot, *streams.Position, error) {
	at, err := l.source.BeforeScan(ctx, called)
	if err != nil {
		return nil, nil, err
	}
	began := l.reader.table.clock.Now()
	rows, baseline := spill.New(snapshotMemory), streams.NewBaseline(began)
	err = l.snapshot(ctx, *f, began, rows, baseline)
	if err == nil {
		err = l.reader.lease.checkMoved(ctx)
	}
	if err != nil {
		_ = rows.Close()
		baseline.Close()
		return nil, nil, err
	}
	return &snapshot{rows: rows, reader: rows.Read(0)}, l.source.Join(at, baseline), nil
}

// snapshot reads the resources that match the filter into rows, and the state of each key that it read into baseline.
//
// A record of a state that the scan returned may come later in the stream than the watch's position, and so may records of earlier
// states. The counts of the versionRings identify them. For deleted keys these are the counts of the tombstones. A key without either
// was deleted so long before the scan that the counts of its records tell; see streams.Baseline. The comparison of the elapsed time with
// tombstoneTTL ensures that.
func (l *lister) snapshot(ctx context.Context, filter driver.Filter, began time.Time, rows *spill.Spool, baseline *streams.Baseline) error {
	err := l.scan(ctx, scanRange{filter: filter, consistency: storage.StrongConsistency}, func(h *headItem) (bool, error) {
		if h.damage == nil {
			if err := baseline.Add(h.key, h.ring.count); err != nil || !h.live {
				return true, err
			}
		}
		row, err := l.snapshotRow(ctx, h)
		if err != nil {
			return false, err
		}
		return true, rows.Append(row)
	})
	if err != nil {
		return err
	}
	if took := l.reader.table.clock.Now().Sub(began); took > tombstoneTTL/2 {
		return fmt.Errorf("%w: reading the snapshot took %v, but deletions are known only for %v", storage.ErrInconsistent, took, tombstoneTTL)
	}
	if err := rows.Seal(); err != nil {
		return err
	}
	return baseline.Seal()
}

// snapshotRow returns the row of a resource: the length of its version, the version, the data. The row of a damaged resource begins with
// damagedRow.
func (l *lister) snapshotRow(ctx context.Context, h *headItem) ([]byte, error) {
	data, err := l.decodable(ctx, h)
	var damaged *storage.DamagedError
	switch {
	case errors.As(err, &damaged):
		row, err := json.Marshal(damage{h.key.Bytes(), damaged.ID.GetUid(), damaged.Version, damaged.Err.Error()})
		return append([]byte{damagedRow}, row...), err
	case err != nil:
		return nil, err
	}
	version := h.ring.version()
	row := append(make([]byte, 0, 1+len(version)+len(data)), byte(len(version)))
	return append(append(row, version...), data...), nil
}

// decodable returns the data of a resource. It decodes the data already while the key is known.
func (l *lister) decodable(ctx context.Context, h *headItem) ([]byte, error) {
	if h.damage != nil {
		return nil, h.damage
	}
	packed, err := l.reader.gather(ctx, h)
	if err != nil {
		return nil, err
	}
	data, err := unpack(packed)
	if err != nil {
		return nil, h.damageError(packed, err)
	}
	_, err = h.decodeUnpacked(data)
	return data, err
}

// damagedRow begins the row of a damaged resource. No version is as long.
const damagedRow = 255

// damage is the content of such a row.
type damage struct {
	Key                 []byte
	Uid, Version, Cause string
}

// error returns the damage as a *storage.DamagedError.
func (d *damage) error() error {
	k, err := key.Parse(d.Key)
	if err != nil {
		return err
	}
	return codec.DamageError(k, d.Uid, d.Version, nil, errors.New(d.Cause))
}

// snapshot is a driver.Snapshot of spooled rows.
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
	if row[0] == damagedRow {
		var d damage
		return nil, errors.Join(json.Unmarshal(row[1:], &d), d.error())
	}
	end := 1 + int(row[0])
	return codec.Decode(row[end:], string(row[1:end]))
}

// Close implements driver.Snapshot.
func (s *snapshot) Close() { _ = s.rows.Close() }
