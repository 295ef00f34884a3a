package etcdserver_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// If several transactions delete the same keys concurrently, and do nothing else, each counts only its own deletions.
func TestDeletionsAreCountedOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		const keys, deleters = 6, 4
		for range 20 {
			for i := range keys {
				put(t, c, fmt.Sprint("once/", i), "")
			}
			var deleted atomic.Int64
			var all sync.WaitGroup
			for range deleters {
				all.Go(func() {
					r, err := c.Txn(ctx(t)).Then(clientv3.OpDelete("once/", clientv3.WithPrefix(), clientv3.WithPrevKV())).Commit()
					if err != nil {
						t.Error(err)
						return
					}
					one := r.Responses[0].GetResponseDeleteRange()
					deleted.Add(one.Deleted)
					if len(one.PrevKvs) != int(one.Deleted) {
						t.Errorf("%d keys were deleted, and %d returned", one.Deleted, len(one.PrevKvs))
					}
				})
			}
			all.Wait()
			if deleted.Load() != keys {
				t.Fatalf("of %d keys, %d were deleted", keys, deleted.Load())
			}
		}
	})
}

// A watch from the revision of a range deletion sees every key that the range contained at that revision or gets later: no key remains
// unseen, and a client that keeps creating keys cannot prevent the deletion from finishing.
func TestRangesAreDeletedWhileKeysAreCreated(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		var done atomic.Bool
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() {
				for n := 0; !done.Load(); n++ {
					if _, err := c.Put(ctx(t), fmt.Sprintf("range/%d-%d", w, n%200), ""); err != nil { // some keys again, some new
						t.Error(err)
						return
					}
				}
			})
		}
		deleted := int64(0)
		for n := range 20 {
			var revision int64
			if n%2 == 0 {
				r, err := c.Txn(ctx(t)).Then(
					clientv3.OpPut("turn", fmt.Sprint(n)),
					clientv3.OpDelete("range/", clientv3.WithPrefix()),
					clientv3.OpGet("range/", clientv3.WithPrefix()),
				).Commit()
				if errors.Is(err, rpctypes.ErrTooManyOps) {
					continue // more keys than a transaction allows were created meanwhile
				}
				if err != nil {
					t.Error(err)
					break
				}
				revision = r.Header.Revision
				deleted += r.Responses[1].GetResponseDeleteRange().Deleted
				for _, kv := range r.Responses[2].GetResponseRange().Kvs {
					t.Errorf("the transaction sees %s, which it has deleted", kv.Key)
				}
			} else {
				r, err := c.Delete(ctx(t), "range/", clientv3.WithPrefix(), clientv3.WithPrevKV())
				if err != nil || len(r.PrevKvs) != int(r.Deleted) {
					t.Error(r, err)
					break
				}
				revision = r.Header.Revision
				deleted += r.Deleted
			}
			now, err := c.Get(ctx(t), "range/", clientv3.WithPrefix())
			if err != nil {
				t.Error(err)
				break
			}
			for _, kv := range now.Kvs {
				if kv.CreateRevision <= revision {
					t.Errorf("%s, created at revision %d, exists after a deletion at revision %d", kv.Key, kv.CreateRevision, revision)
				}
			}
		}
		done.Store(true)
		all.Wait()
		if deleted == 0 {
			t.Error("no key was deleted")
		}
	})
}

// One of two concurrent transactions comes first: it does not see the other one, and has a different revision.
func TestOneTransactionComesFirst(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		const pairs, rounds = 8, 30
		var all sync.WaitGroup
		for p := range pairs {
			all.Go(func() {
				for round := range rounds {
					var sees, at [2]int64
					var both sync.WaitGroup
					for side := range 2 {
						both.Go(func() {
							mine, other := fmt.Sprintf("/%d/%d/%d", p, round, side), fmt.Sprintf("/%d/%d/%d", p, round, 1-side)
							r, err := c.Txn(ctx(t)).Then(clientv3.OpPut("a"+mine, ""), clientv3.OpPut("z"+mine, ""), clientv3.OpGet("a"+other)).Commit()
							if err != nil {
								t.Error(err)
								return
							}
							sees[side], at[side] = r.Responses[2].GetResponseRange().Count, r.Header.Revision
						})
					}
					both.Wait()
					if sees[0]+sees[1] != 1 || at[0] == at[1] {
						t.Errorf("of two transactions, at revisions %d, %d see the other one", at, sees[0]+sees[1])
					}
				}
			})
		}
		all.Wait()
	})
}
