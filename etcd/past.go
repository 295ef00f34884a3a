package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// revisionReader implements the reads of driver.Historian.
type revisionReader struct{ *conn }

// ReadAt implements driver.Historian. Any member with the revision may answer an eventual read, since all members keep the same
// history. A read of keys only is no cheaper than a full one, because the version text depends on the uid and the owner.
func (p revisionReader) ReadAt(ctx context.Context, q *driver.HistoryQuery[position], add func(*driver.Version) error) (past driver.HistoryPage[position], err error) {
	if q.At != nil && (q.At.key != endKey || q.At.rev <= 0) {
		return past, fmt.Errorf("%w: the position is inside a revision; only complete revisions can be read", storage.ErrInvalid)
	}
	ctx, done, err := p.begin(ctx)
	if err != nil {
		return past, err
	}
	defer done()
	var r *historyRead
	if q.At != nil {
		r, err = p.readHistory(ctx, q)
	} else {
		// A compaction may remove the revision between two chunks.
		r, err = retryRead(ctx, func() (*historyRead, error) { return p.readHistory(ctx, q) })
	}
	if err != nil {
		return past, err
	}
	for i := range r.versions {
		if err := add(&r.versions[i]); err != nil {
			return past, err
		}
	}
	return r.page, nil
}

// historyRead is the result of a ReadAt.
type historyRead struct {
	page     driver.HistoryPage[position]
	versions []driver.Version
}

func (p revisionReader) readHistory(ctx context.Context, q *driver.HistoryQuery[position]) (*historyRead, error) {
	l := newListingWithin(p.conn, q.Filter, q.From, q.To, q.Consistency)
	l.pinnedRevision, l.refuseMoved = q.Final, q.RefuseMoved
	if q.At != nil {
		if oldest := p.oldest.Load(); q.At.rev < oldest {
			return nil, compactedError{oldest}
		}
		l.rev, l.pinnedRevision = q.At.rev, true
	}
	r := &historyRead{}
	size := 0
	for {
		if q.Limit > 0 {
			l.limitChunk(q.Limit-len(r.versions)+1, len(r.versions)) // one more shows whether there are more
		}
		k, kv, err := l.take(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		v, err := p.layout.versionOf(k, kv)
		if damaged := (*storage.DamagedError)(nil); errors.As(err, &damaged) { // the caller may skip it
			v = driver.Version{
				Key: k.Bytes(), Version: []byte(damaged.Version), Damage: err,
				CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Writes: kv.Version,
			}
		} else if err != nil {
			return nil, err
		}
		r.versions = append(r.versions, v)
		if size += len(kv.Value); len(r.versions) == q.Limit || size >= q.MaxBytes() {
			break
		}
	}
	r.page.At = endOf(l.rev)
	if q.Count {
		var err error
		if r.page.Count, err = l.count(ctx, int64(len(r.versions))); err != nil {
			return nil, err
		}
		r.page.More = r.page.Count > int64(len(r.versions))
		return r, nil
	}
	_, _, err := l.first()
	r.page.More = !errors.Is(err, io.EOF)
	return r, nil
}

// versionOf decodes a key-value pair to a version.
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

// countChunk is the number of keys in a request of count.
const countChunk = 10_000

// count returns the number of matches in the range. taken is the number of matches read so far. If all keys match, it returns the
// server's count.
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

// Before implements driver.Historian. A creation has no previous version, a deletion carries it, and for some events an earlier one in
// events has written it. The others are read, many keys in one transaction, each at the revision before its event.
func (p revisionReader) Before(ctx context.Context, events []*event) ([]*driver.Version, error) {
	ctx, done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	versions := make([]*driver.Version, len(events))
	written := make(map[key.Key]*event, len(events))
	var wanted []int
	for i, ev := range events {
		last := written[ev.Key]
		switch {
		case ev.Delete && ev.Resource != nil:
			at, _ := p.layout.parseVersion(ev.Key, ev.Resource.GetId().GetUid(), ev.Resource.GetVersion())
			v := version(ev.Key, ev.Resource, ev.CreateRevision, at.rev, ev.Writes)
			versions[i] = &v
		case !ev.Delete && ev.Writes == 1:
		case last != nil && last.CreateRevision == ev.CreateRevision && last.Writes == ev.Writes-1:
			v := version(ev.Key, last.Resource, last.CreateRevision, last.Revision, last.Writes)
			versions[i] = &v
		default:
			wanted = append(wanted, i)
		}
		if delete(written, ev.Key); !ev.Delete && ev.Resource != nil {
			written[ev.Key] = ev
		}
	}
	for len(wanted) > 0 {
		n, size := 0, 0
		for n < len(wanted) && n < min(p.opts.MaxTxnOps, maxReads) && (n == 0 || size < driver.PageBytes) {
			size += events[wanted[n]].Size // an estimate: the previous version is mostly of similar size
			n++
		}
		if err := p.readBefore(ctx, events, wanted[:n], versions); err != nil {
			return nil, err
		}
		wanted = wanted[n:]
	}
	return versions, nil
}

// readBefore reads the versions stored before the events with the indexes in wanted.
func (p revisionReader) readBefore(ctx context.Context, events []*event, wanted []int, versions []*driver.Version) error {
	gets := make([]*pb.RequestOp, len(wanted))
	for i, at := range wanted {
		gets[i] = opGet(p.layout.resource(events[at].Key))
		gets[i].GetRequestRange().Revision = events[at].Revision - 1
	}
	resp, err := retry(ctx, p.retries, func(ctx context.Context) (*pb.TxnResponse, error) {
		return p.txn(ctx, &pb.TxnRequest{Success: gets})
	})
	if err != nil {
		return err
	}
	p.recordRevision(resp.Header.Revision)
	for i, at := range wanted {
		ev := events[at]
		kv := first(resp.Responses[i].GetResponseRange().Kvs)
		writes := ev.Writes - 1
		if ev.Delete {
			writes = ev.Writes
		}
		if kv == nil || kv.CreateRevision != ev.CreateRevision || kv.Version != writes {
			return fmt.Errorf("%w: the value stored at revision %d differs from the value that revision %d replaced", errWentBack, ev.Revision-1, ev.Revision)
		}
		v, err := p.layout.versionOf(ev.Key, kv)
		var damaged *storage.DamagedError
		if errors.As(err, &damaged) {
			return fmt.Errorf("%w: %w", storage.ErrCompacted, err) // a retry would fail, too
		}
		if err != nil {
			return err
		}
		versions[at] = &v
	}
	return nil
}
