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
// them, too. All changes of a transaction share one revision, including the writes of several callers in one batch.

// historian implements driver.Historian, except for the reads in past.go.
type historian struct{ *conn }

// Revisions implements driver.Historian. etcd reports the revision of its last compaction only to a watch that starts before it, which
// takes about a tenth of a second. So the handle first reads at the oldest revision it knows, and opens a watch only if that fails.
func (h historian) Revisions(ctx context.Context) (oldest, newest int64, err error) {
	ctx, done, err := h.begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer done()
	seen := h.newestRevision.Load()
	for {
		oldest = max(h.oldest.Load(), 1)
		newest, err = h.readableAt(ctx, oldest)
		switch {
		case err == nil && newest < seen:
			return 0, 0, errWentBack
		case err == nil:
			return oldest, newest, nil
		case !errors.Is(err, rpctypes.ErrCompacted):
			return 0, 0, err
		}
		if err := h.queryOldest(ctx, oldest); err != nil {
			return 0, 0, err
		}
	}
}

// readableAt returns the newest revision, by a linearizable read. It fails if rev cannot be read any more.
func (h historian) readableAt(ctx context.Context, rev int64) (newest int64, err error) {
	resp, err := retry(ctx, h.retries, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return h.kv.Get(ctx, h.layout.storeKey(), clientv3.WithCountOnly(), clientv3.WithRev(rev))
	})
	if err != nil {
		return 0, err
	}
	h.recordRevision(resp.Header.Revision)
	return resp.Header.Revision, nil
}

// queryOldest records the oldest revision that can be read. It needs a compacted revision to start a watch from.
func (h historian) queryOldest(ctx context.Context, compacted int64) error {
	_, err := retry(ctx, h.retries, func(ctx context.Context) (struct{}, error) {
		s, err := openStream(ctx, h.conn, []byte(h.layout.storeKey()), nil, compacted)
		if err == nil {
			defer s.close()
			_, err = s.await(ctx)
		}
		var compaction compactedError
		switch {
		case errors.As(err, &compaction):
			h.compactedBefore(compaction.oldest)
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
func (h historian) PositionAt(ctx context.Context, revision int64) (position, error) {
	ctx, done, err := h.begin(ctx)
	if err != nil {
		return position{}, err
	}
	defer done()
	seen := h.newestRevision.Load()
	if revision < h.oldest.Load() {
		return position{}, compactedError{h.oldest.Load()}
	}
	if revision <= seen {
		return endOf(revision), nil
	}
	newest, err := h.revision(ctx)
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

// AwaitFinal implements driver.Historian.
func (h historian) AwaitFinal(ctx context.Context, revision int64) error {
	_, err := h.PositionAt(ctx, revision)
	return err
}

// RevisionOf implements driver.Historian. Callers that pass a position inside a revision need no more events of that revision.
func (historian) RevisionOf(at position) int64 { return at.rev }

// Compact implements driver.Historian. It compacts the whole cluster, with all other stores and keys in it.
func (h historian) Compact(ctx context.Context, revision int64) error {
	ctx, done, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if revision <= max(h.oldest.Load(), 1) {
		return nil
	}
	// If the first answer was lost, etcd answers the retry with ErrCompacted.
	_, err = retry(ctx, h.retries, func(ctx context.Context) (*clientv3.CompactResponse, error) {
		return h.client.Compact(clientv3.WithRequireLeader(ctx), revision)
	})
	switch {
	case errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: etcd has not reached revision %d", storage.ErrFutureRevision, revision)
	case err != nil && !errors.Is(err, rpctypes.ErrCompacted):
		return err
	}
	h.compactedBefore(revision)
	return nil
}
