package etcdserver_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

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

// A range that a transaction has deleted is empty at its revision, whoever creates keys meanwhile.
func TestATransactionDeletesItsRangeToTheLast(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		var over atomic.Bool
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() {
				for n := 0; !over.Load(); n++ {
					if _, err := c.Put(ctx(t), fmt.Sprintf("range/%d-%d", w, n), ""); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		deleted := int64(0)
		for n := range 40 {
			r, err := c.Txn(ctx(t)).Then(
				clientv3.OpPut("turn", fmt.Sprint(n)),
				clientv3.OpDelete("range/", clientv3.WithPrefix()),
				clientv3.OpGet("range/", clientv3.WithPrefix(), clientv3.WithCountOnly()),
			).Commit()
			if err != nil {
				t.Error(err)
				break
			}
			deleted += r.Responses[1].GetResponseDeleteRange().Deleted
			then, err := c.Get(ctx(t), "range/", clientv3.WithPrefix(), clientv3.WithRev(r.Header.Revision))
			if left := r.Responses[2].GetResponseRange().Count; err != nil || left != 0 || then.Count != 0 {
				t.Errorf("a transaction leaves %d keys of a range that it deletes, of which it sees %d, %v", then.Count, left, err)
				break
			}
		}
		over.Store(true)
		all.Wait()
		left, err := c.Get(ctx(t), "range/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || deleted == 0 {
			t.Errorf("%d keys were deleted, %d are left, %v", deleted, left.Count, err)
		}
	})
}
