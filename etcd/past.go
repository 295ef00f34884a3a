package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ReadAt implements driver.Historian. Any member that has the revision may answer an eventual reading, as all of them keep the same
// history. A version's text needs the uid and the owner, so that a reading of keys only is no cheaper than another.
func (b *handle) ReadAt(ctx context.Context, q *driver.HistoryQuery[position], add func(*driver.Version) error) (past driver.HistoryPage[position], err error) {
	if q.At != nil && (q.At.key != endKey || q.At.rev <= 0) {
		return past, fmt.Errorf("%w: the position is inside of a revision, where nothing can be read", storage.ErrInvalid)
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return past, err
	}
	defer done()
	var r *pastReading
	if q.At != nil {
		r, err = b.readPast(ctx, q)
	} else {
		// A compaction may overtake the first chunk and the next ones.
		r, err = again(ctx, func() (*pastReading, error) { return b.readPast(ctx, q) })
	}
	if err != nil {
		return past, err
	}
	for i := range r.versions {
		if err := add(&r.versions[i]); err != nil {
			return past, err
		}
	}
	return r.past, nil
}

// pastReading is what a ReadAt came to.
type pastReading struct {
	past     driver.HistoryPage[position]
	versions []driver.Version
}

func (b *handle) readPast(ctx context.Context, q *driver.HistoryQuery[position]) (*pastReading, error) {
	l := b.listWithin(q.Filter, q.From, q.To, q.Consistency)
	l.fixed = q.Final
	if q.At != nil {
		if oldest := b.oldest.Load(); q.At.rev < oldest {
			return nil, compactedError{oldest}
		}
		l.rev, l.fixed = q.At.rev, true
	}
	r := &pastReading{}
	size := 0
	for {
		if q.Limit > 0 {
			l.expect(q.Limit-len(r.versions)+1, len(r.versions)) // one more reports whether there is more
		}
		k, kv, err := l.take(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		v, err := b.layout.versionOf(k, kv)
		if err != nil {
			return nil, err
		}
		r.versions = append(r.versions, v)
		if size += len(kv.Value); len(r.versions) == q.Limit || size >= q.MaxBytes() {
			break
		}
	}
	r.past.At = endOf(l.rev)
	if q.Count {
		var err error
		if r.past.Count, err = l.count(ctx, int64(len(r.versions))); err != nil {
			return nil, err
		}
		r.past.More = r.past.Count > int64(len(r.versions))
		return r, nil
	}
	_, _, err := l.first()
	r.past.More = !errors.Is(err, io.EOF)
	return r, nil
}

// versionOf returns what a key-value pair holds as a version.
func (l *layout) versionOf(k key.Key, kv *mvccpb.KeyValue) (driver.Version, error) {
	res, err := l.decodeValue(k, kv)
	if err != nil {
		return driver.Version{}, err
	}
	return version(k, res, kv.CreateRevision, kv.ModRevision, kv.Version), nil
}

func version(k key.Key, res *resourcepb.Resource, created, modified, writes int64) driver.Version {
	return driver.Version{
		Key: k.Bytes(), Version: []byte(res.GetVersion()), Resource: res, CreateRevision: created, ModRevision: modified, Writes: writes,
	}
}

// countChunk is how many keys are asked for at a time to be counted.
const countChunk = 10_000

// count returns the number of matches in the whole range, of which so many were taken. The server counts where all keys match.
func (l *listing) count(ctx context.Context, taken int64) (int64, error) {
	if l.filter == nil {
		return l.total, nil
	}
	if _, exact := l.filter.Prefix(); exact {
		return l.total, nil
	}
	l.keysOnly, l.chunk = true, countChunk
	for {
		_, _, err := l.take(ctx)
		if errors.Is(err, io.EOF) {
			return taken, nil
		}
		if err != nil {
			return 0, err
		}
		taken++
	}
}
