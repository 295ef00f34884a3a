package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
)

// The numbers of a historian are etcd's own revisions, which count the changes of the whole cluster: those of other stores and of
// strangers too. What one transaction changes has one revision, a batch of several callers' writes among them.

// compactedBefore notes that all before a revision is compacted.
func (b *handle) compactedBefore(rev int64) {
	for {
		old := b.oldest.Load()
		if rev <= old || b.oldest.CompareAndSwap(old, rev) {
			return
		}
	}
}

// Revisions implements driver.Historian. etcd tells the revision of its last compaction to nobody but a watch that begins before it.
// So what was the oldest revision is read at, and only where that fails a watch is asked, which takes about a tenth of a second.
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
		if err := b.askOldest(ctx, oldest); err != nil {
			return 0, 0, err
		}
	}
}

// readableAt fails unless the store can be read at a revision, and returns the newest one, linearizably.
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

// askOldest finds out the oldest revision, for whoever knows one that is compacted.
func (b *handle) askOldest(ctx context.Context, compacted int64) error {
	_, err := retry(ctx, func(ctx context.Context) (struct{}, error) {
		s, err := b.openStream(ctx, []byte(b.layout.storeKey()), nil, compacted)
		if err == nil {
			defer s.close()
			_, err = s.await(ctx)
		}
		var gone compactedError
		switch {
		case errors.As(err, &gone):
			b.compactedBefore(gone.oldest)
			return struct{}{}, nil
		case err == nil:
			err = errors.New("the member that was asked has not compacted its history yet")
		}
		return struct{}{}, err
	})
	return err
}

// PositionAt implements driver.Historian. A revision that was shown to this handle needs no question: whoever reads there finds out
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

// RevisionOf implements driver.Historian. A position inside of a revision is asked for only by who wants nothing more of it.
func (*handle) RevisionOf(at position) int64 { return at.rev }

// Compact implements driver.Historian. The compaction is that of the whole cluster, with all other stores and keys in it.
func (b *handle) Compact(ctx context.Context, revision int64) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if revision <= max(b.oldest.Load(), 1) {
		return nil
	}
	// Asked again after a lost answer, etcd says that it has been compacted already.
	_, err = retry(ctx, func(ctx context.Context) (*clientv3.CompactResponse, error) {
		return b.client.Compact(clientv3.WithRequireLeader(ctx), revision)
	})
	switch {
	case errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: etcd has not come to revision %d", storage.ErrFutureRevision, revision)
	case err != nil && !errors.Is(err, rpctypes.ErrCompacted):
		return err
	}
	b.compactedBefore(revision)
	return nil
}
