package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
)

// The Historian's numbers are etcd's own revisions. They count the changes of the whole cluster, so other stores and other programs raise
// them, too. All changes of a transaction share one revision, and so do the writes of several callers in one batch.

// compactedBefore records that all revisions before rev are compacted.
func (b *handle) compactedBefore(rev int64) {
	for {
		old := b.oldest.Load()
		if rev <= old || b.oldest.CompareAndSwap(old, rev) {
			return
		}
	}
}

// Revisions implements driver.Historian. etcd reports the revision of its last compaction only to a watch that starts before it, which
// takes about a tenth of a second. So the handle first reads at the oldest revision it knows, and opens a watch only if that fails.
func (b *handle) Revisions(ctx context.Context) (oldest, newest int64, err error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer done()
	seen := b.newestRevision.Load()
	for {
		oldest = max(b.oldest.Load(), 1)
		newest, err = b.readableAt(ctx, oldest)
		switch {
		case err == nil && newest < seen:
			return 0, 0, errWentBack
		case err == nil:
			return oldest, newest, nil
		case !errors.Is(err, rpctypes.ErrCompacted):
			return 0, 0, err
		}
		if err := b.queryOldest(ctx, oldest); err != nil {
			return 0, 0, err
		}
	}
}

// readableAt returns the newest revision, by a linearizable read. It fails if rev cannot be read any more.
func (b *handle) readableAt(ctx context.Context, rev int64) (newest int64, err error) {
	resp, err := retry(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return b.kv.Get(ctx, b.layout.storeKey(), clientv3.WithCountOnly(), clientv3.WithRev(rev))
	})
	if err != nil {
		return 0, err
	}
	b.recordRevision(resp.Header.Revision)
	return resp.Header.Revision, nil
}

// queryOldest records the oldest revision that can be read. It needs a compacted revision to start a watch from.
func (b *handle) queryOldest(ctx context.Context, compacted int64) error {
	_, err := retry(ctx, func(ctx context.Context) (struct{}, error) {
		s, err := b.openStream(ctx, []byte(b.layout.storeKey()), nil, compacted)
		if err == nil {
			defer s.close()
			_, err = s.await(ctx)
		}
		var compaction compactedError
		switch {
		case errors.As(err, &compaction):
			b.compactedBefore(compaction.oldest)
			return struct{}{}, nil
		case err == nil:
			err = errors.New("the etcd member has not compacted its history yet")
		}
		return struct{}{}, err
	})
	return err
}

// PositionAt implements driver.Historian. It sends no request for a revision that the handle has seen: a read at that position reports
// whether it is compacted.
func (b *handle) PositionAt(ctx context.Context, revision int64) (position, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return position{}, err
	}
	defer done()
	seen := b.newestRevision.Load()
	if revision < b.oldest.Load() {
		return position{}, compactedError{b.oldest.Load()}
	}
	if revision <= seen {
		return endOf(revision), nil
	}
	newest, err := b.revision(ctx)
	switch {
	case err != nil:
		return position{}, err
	case newest < seen:
		return position{}, errWentBack
	case newest < revision:
		return position{}, fmt.Errorf("%w: the newest is %d", storage.ErrFutureRevision, newest)
	}
	return endOf(revision), nil
}

// Settled implements driver.Historian.
func (b *handle) Settled(ctx context.Context, revision int64) error {
	_, err := b.PositionAt(ctx, revision)
	return err
}

// RevisionOf implements driver.Historian. Callers that pass a position inside a revision need no more events of that revision.
func (*handle) RevisionOf(at position) int64 { return at.rev }

// Compact implements driver.Historian. It compacts the whole cluster, with all other stores and keys in it.
func (b *handle) Compact(ctx context.Context, revision int64) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if revision <= max(b.oldest.Load(), 1) {
		return nil
	}
	// If the first answer was lost, etcd answers the retry with ErrCompacted.
	_, err = retry(ctx, func(ctx context.Context) (*clientv3.CompactResponse, error) {
		return b.client.Compact(clientv3.WithRequireLeader(ctx), revision)
	})
	switch {
	case errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: etcd has not reached revision %d", storage.ErrFutureRevision, revision)
	case err != nil && !errors.Is(err, rpctypes.ErrCompacted):
		return err
	}
	b.compactedBefore(revision)
	return nil
}
