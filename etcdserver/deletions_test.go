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

// Of transactions that delete the same keys at the same time, and do nothing else, each counts what it has deleted itself.
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

// What a range that is deleted had at the revision of the answer, or gets later, is what a watch from there on sees: nothing is left behind
// unseen, and nobody who creates keys all the time keeps a deletion from its end.
func TestRangesAreDeletedWhileKeysAreCreated(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		var over atomic.Bool
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() {
				for n := 0; !over.Load(); n++ {
					if _, err := c.Put(ctx(t), fmt.Sprintf("range/%d-%d", w, n%200), ""); err != nil { // some again, some anew
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
					continue // more keys than a transaction takes were created meanwhile
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
					t.Errorf("%s, created at revision %d, is left after a deletion at revision %d", kv.Key, kv.CreateRevision, revision)
				}
			}
		}
		over.Store(true)
		all.Wait()
		if deleted == 0 {
			t.Error("no key was deleted")
		}
	})
}

// Of two transactions one comes first: it does not see what the other one does, and has another revision.
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
