package etcdserver_test

import (
	"context"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// meddled is a store that runs a function just before or after a commit, or just before a follower is opened.
type meddled struct {
	storage.Backend
	history.Historian
	storage.Transactor
	commits, committed, follows atomic.Pointer[func()]
}

func meddle(t *testing.T, b storage.Backend) *meddled {
	t.Helper()
	h, numbered := storage.As[history.Historian](b)
	tx, commits := storage.As[storage.Transactor](b)
	if !numbered || !commits {
		t.Fatal("the store has no history or no transactions")
	}
	return &meddled{Backend: b, Historian: h, Transactor: tx}
}

func (m *meddled) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if do := m.commits.Swap(nil); do != nil {
		(*do)()
	}
	stored, err := m.Transactor.Commit(ctx, ops)
	if do := m.committed.Swap(nil); do != nil {
		(*do)()
	}
	return stored, err
}

func (m *meddled) Swap(ctx context.Context, swap history.Swap) (history.SwapResult, error) {
	if do := m.commits.Swap(nil); do != nil {
		(*do)()
	}
	return m.Historian.Swap(ctx, swap)
}

func (m *meddled) Follow(ctx context.Context, span history.Range, after int64) (history.Follower, error) {
	if do := m.follows.Swap(nil); do != nil {
		(*do)()
	}
	return m.Historian.Follow(ctx, span, after)
}

// A lease that is reported as alive was not revoked up to the revision of the response.
func TestALeaseLivesAtTheRevisionOfItsRenewal(t *testing.T) {
	t.Parallel()
	b := fixture.Open(t, "mem:")
	m := meddle(t, b)
	renewing, other := client(t, serve(t, m, nil)), client(t, serve(t, b, nil))
	id := grant(t, other, 60)
	put(t, other, "leased", "", clientv3.WithLease(id))
	revoke := func() {
		if _, err := other.Revoke(ctx(t), id); err != nil {
			t.Error(err)
		}
	}
	m.committed.Store(&revoke)
	kept, err := renewing.KeepAliveOnce(ctx(t), id)
	if err != nil {
		t.Fatal(err)
	}
	r, err := other.Get(ctx(t), "leased", clientv3.WithRev(kept.Revision))
	if err != nil || kept.TTL != 60 || r.Count != 1 {
		t.Errorf("a lease lives for %d at revision %d, and has %d keys there, %v", kept.TTL, kept.Revision, r.Count, err)
	}
}

// A watch from the current revision, or a future one, is not affected by a compaction at the moment it begins.
func TestCompactionWhileAWatchBegins(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]int64{"now": 0, "the future": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.Open(t, "mem:")
			m := meddle(t, b)
			watching, other := client(t, serve(t, m, nil)), client(t, serve(t, b, nil))
			at := put(t, other, "a", "before")
			compact := func() {
				if _, err := other.Compact(ctx(t), put(t, other, "a", "between")); err != nil {
					t.Error(err)
				}
			}
			m.follows.Store(&compact)
			var from []clientv3.OpOption
			if ahead > 0 {
				from = append(from, clientv3.WithRev(at+ahead))
			}
			w := watching.Watch(ctx(t), "a", append(from, clientv3.WithCreatedNotify())...)
			if r := <-w; r.Err() != nil || r.CompactRevision != 0 || !r.Created {
				t.Fatalf("it begins with %v, %v", r, r.Err())
			}
			put(t, other, "a", "next")
			last := put(t, other, "a", "last")
			for seen := int64(0); seen < last; {
				r := <-w
				if r.Err() != nil {
					t.Fatal(r.Err())
				}
				for _, ev := range r.Events {
					if seen = ev.Kv.ModRevision; seen < at+ahead {
						t.Errorf("it shows revision %d", seen)
					}
				}
			}
		})
	}
}

// A key that a transaction deletes does not exist at its revision, even if it did not exist before and another client creates it at the
// same moment.
func TestAKeyIsCreatedWhileItIsDeleted(t *testing.T) {
	t.Parallel()
	for name, puts := range map[string][]clientv3.Op{
		"beside a put": {clientv3.OpPut("done", "")}, "beside two puts": {clientv3.OpPut("done", ""), clientv3.OpPut("done too", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.Open(t, "mem:")
			m := meddle(t, b)
			deleting, other := client(t, serve(t, m, nil)), client(t, serve(t, b, nil))
			creates := func() { put(t, other, "k", "") }
			m.commits.Store(&creates)
			r, err := deleting.Txn(ctx(t)).Then(append(puts, clientv3.OpDelete("k"))...).Commit()
			if err != nil {
				t.Fatal(err)
			}
			there, err := other.Get(ctx(t), "k", clientv3.WithRev(r.Header.Revision))
			if err != nil || there.Count > 0 {
				t.Errorf("a key exists at the revision at which a transaction deleted it: %v, %v", there, err)
			}
		})
	}
}

// The response of a transaction has the revision of its changes, even if the revision before it is compacted at the same moment.
func TestRevisionOfATransactionBesideACompaction(t *testing.T) {
	t.Parallel()
	for name, ops := range map[string][]clientv3.Op{
		"puts":      {clientv3.OpPut("a", "now"), clientv3.OpPut("b", "now")},
		"deletions": {clientv3.OpDelete("a"), clientv3.OpDelete("b")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.Open(t, "mem:")
			m := meddle(t, b)
			writing, other := client(t, serve(t, m, nil)), client(t, serve(t, b, nil))
			put(t, other, "a", "before")
			put(t, other, "b", "before")
			var before, after int64
			change := func() { before = put(t, other, "other", "before") }
			m.commits.Store(&change)
			compact := func() {
				after = put(t, other, "other", "after")
				if _, err := other.Compact(ctx(t), before); err != nil {
					t.Error(err)
				}
			}
			m.committed.Store(&compact)
			r, err := writing.Txn(ctx(t)).Then(ops...).Commit()
			if err != nil {
				t.Fatal(err)
			}
			if r.Header.Revision <= before || r.Header.Revision >= after {
				t.Errorf("a transaction between the revisions %d and %d has %d", before, after, r.Header.Revision)
			}
			w := other.Watch(ctx(t), "", clientv3.WithPrefix(), clientv3.WithRev(r.Header.Revision))
			if changes := <-w; len(changes.Events) == 0 || changes.Events[0].Kv.ModRevision != r.Header.Revision {
				t.Errorf("a watch from the revision %d of the transaction begins with %v", r.Header.Revision, changes)
			}
		})
	}
}
