package etcdserver_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A key that is compared, deleted and replaced by another key is taken exactly once, whatever concurrent deletions there are.
func TestOneTakesAKey(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		const takers = 6
		for round := range 20 {
			token := fmt.Sprint("token/", round)
			put(t, c, token, "")
			var taken atomic.Int64
			var all sync.WaitGroup
			for i := range takers {
				all.Go(func() {
					if i%3 == 0 {
						r, err := c.Delete(ctx(t), token)
						if err != nil {
							t.Error(err)
							return
						}
						taken.Add(r.Deleted)
						return
					}
					won := fmt.Sprintf("won/%d-%d", round, i)
					r, err := c.Txn(ctx(t)).If(clientv3.Compare(clientv3.Version(token), ">", 0)).
						Then(clientv3.OpDelete(token), clientv3.OpPut(won, ""), clientv3.OpDelete("none")).
						Else(clientv3.OpGet(token), clientv3.OpGet(won)).Commit()
					switch {
					case err != nil:
						t.Error(err)
					case r.Succeeded:
						taken.Add(r.Responses[0].GetResponseDeleteRange().Deleted)
					case r.Responses[0].GetResponseRange().Count+r.Responses[1].GetResponseRange().Count > 0:
						t.Errorf("a transaction that failed sees %v", r.Responses)
					}
				})
			}
			all.Wait()
			if taken.Load() != 1 {
				t.Fatalf("a key was taken %d times", taken.Load())
			}
		}
	})
}

// The deletions and puts of a transaction have the revision of its response, even if it only deletes, and a watch from there has them all.
func TestTakenKeysAreWatchedTogether(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		for _, puts := range [][]clientv3.Op{{clientv3.OpPut("k/4", "")}, nil} {
			for i := range 4 {
				put(t, c, fmt.Sprint("k/", i), "")
			}
			is := clientv3.Compare
			r, err := c.Txn(ctx(t)).If(is(clientv3.Version("k/0"), "=", 1), is(clientv3.Version("k/5"), "=", 0)).
				Then(append(puts, clientv3.OpDelete("k/0"), clientv3.OpDelete("k/1", clientv3.WithRange("k/3")))...).Commit()
			if err != nil || !r.Succeeded {
				t.Fatal(r, err)
			}
			last, events := put(t, c, "k/5", ""), 0
			for answer := range c.Watch(ctx(t), "k/", clientv3.WithPrefix(), clientv3.WithRev(r.Header.Revision)) {
				if answer.Err() != nil {
					t.Fatal(answer.Err())
				}
				for _, ev := range answer.Events {
					if events++; ev.Kv.ModRevision != r.Header.Revision && ev.Kv.ModRevision != last {
						t.Errorf("%s has revision %d, the transaction %d", ev.Kv.Key, ev.Kv.ModRevision, r.Header.Revision)
					}
				}
				if answer.Header.Revision >= last {
					break
				}
			}
			if events != 4+len(puts) {
				t.Errorf("%d events", events)
			}
			if _, err := c.Delete(ctx(t), "k/", clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The response with one change of a transaction has a revision at which the change can be read.
func TestWatchOneKeyOfATransaction(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		watches := map[string]clientv3.WatchChan{}
		for _, key := range []string{"one/first", "one/last"} {
			watches[key] = c.Watch(ctx(t), key, clientv3.WithCreatedNotify())
			if created := <-watches[key]; !created.Created {
				t.Fatal(created, created.Err())
			}
		}
		r, err := c.Txn(ctx(t)).Then(clientv3.OpPut("one/first", ""), clientv3.OpPut("one/last", "")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		for key, w := range watches {
			changed := <-w
			if len(changed.Events) != 1 || changed.Events[0].Kv.ModRevision != r.Header.Revision || changed.Header.Revision < r.Header.Revision {
				t.Errorf("%s: a response of revision %d has %v, after a transaction at revision %d", key, changed.Header.Revision, changed.Events, r.Header.Revision)
			}
			got, err := c.Get(ctx(t), key, clientv3.WithRev(changed.Header.Revision))
			if err != nil || got.Count != 1 {
				t.Errorf("%s does not exist at revision %d, with which its change came, %v", key, changed.Header.Revision, err)
			}
		}
	})
}

// Money that is transferred between accounts, which are deleted when they are empty, is neither created nor lost.
func TestSoftwareTransactionalMemoryDeletesKeys(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		const accounts, all = 4, 12
		put(t, c, "account/0", fmt.Sprint(all))
		count := func(s concurrency.STM, n int) (sum int) {
			_, _ = fmt.Sscan(s.Get(fmt.Sprint("account/", n)), &sum) // a missing account has no money
			return sum
		}
		set := func(s concurrency.STM, n, sum int) {
			if sum == 0 {
				s.Del(fmt.Sprint("account/", n))
				return
			}
			s.Put(fmt.Sprint("account/", n), fmt.Sprint(sum))
		}
		var movers sync.WaitGroup
		for m := range 4 {
			movers.Go(func() {
				for i := range 10 {
					from, to := (m+i)%accounts, (m+2*i+1)%accounts
					_, err := concurrency.NewSTM(c, func(s concurrency.STM) error {
						if has := count(s, from); has > 0 && from != to {
							set(s, to, count(s, to)+has)
							set(s, from, 0)
						}
						return nil
					}, concurrency.WithAbortContext(ctx(t)))
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		movers.Wait()
		r, err := c.Get(ctx(t), "account/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, kv := range r.Kvs {
			one := 0
			if _, err := fmt.Sscan(string(kv.Value), &one); err != nil || one == 0 {
				t.Errorf("%s has %s: %v", kv.Key, kv.Value, err)
			}
			sum += one
		}
		if sum != all {
			t.Errorf("the accounts have %d, not %d: %v", sum, all, r.Kvs)
		}
	})
}

// A transaction that depends on the state of a range is rejected. A transaction that depends on a single key is not.
func TestComparedRanges(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		for _, key := range []string{"r/1", "r/2", "r/2"} {
			put(t, c, key, "")
		}
		is := clientv3.Compare
		range1, range2 := is(clientv3.Version("r/"), "=", 1).WithPrefix(), is(clientv3.Version("r/"), ">", 0).WithPrefix()
		empty := is(clientv3.Version("none/"), "=", 0).WithPrefix()
		key1, key2 := is(clientv3.Version("r/1"), "=", 1), is(clientv3.Version("r/1"), "=", 2)
		change := []clientv3.Op{clientv3.OpPut("changed", ""), clientv3.OpPut("changed too", "")}
		for name, row := range map[string]struct {
			compared  []clientv3.Cmp
			then, not []clientv3.Op
			refused   bool
			succeeded bool
		}{
			"holds, and changes":                   {[]clientv3.Cmp{range2}, change, nil, true, false},
			"holds with a key, and changes":        {[]clientv3.Cmp{key1, range2}, change[:1], nil, true, false},
			"is empty, and changes":                {[]clientv3.Cmp{empty}, change[:1], nil, true, false},
			"holds, and reads":                     {[]clientv3.Cmp{range2, empty}, nil, change, false, true},
			"fails for a key, and changes":         {[]clientv3.Cmp{range1}, nil, change, false, false},
			"fails for a key, and changes one":     {[]clientv3.Cmp{range1}, nil, change[:1], false, false},
			"fails for a key, and changes that":    {[]clientv3.Cmp{range1}, nil, []clientv3.Op{clientv3.OpDelete("r/2"), change[0]}, false, false},
			"fails beside one that holds":          {[]clientv3.Cmp{range2, range1}, nil, change, false, false},
			"holds beside a key for which it does": {[]clientv3.Cmp{range2, key2}, nil, change, false, false},
			"fails, and only success changes":      {[]clientv3.Cmp{range1}, change, nil, false, false},
		} {
			put(t, c, "r/2", "")
			put(t, c, "r/2", "")
			r, err := c.Txn(ctx(t)).If(row.compared...).Then(row.then...).Else(row.not...).Commit()
			switch {
			case row.refused && status.Code(err) != codes.Unimplemented:
				t.Errorf("a range that %s: %v, %v", name, r, err)
			case !row.refused && (err != nil || r.Succeeded != row.succeeded):
				t.Errorf("a range that %s: %v, %v", name, r, err)
			}
			changed, err := c.Delete(ctx(t), "changed", clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			if wanted := !row.refused && !row.succeeded && row.not != nil; wanted != (changed.Deleted > 0) {
				t.Errorf("a range that %s: %d keys were changed", name, changed.Deleted)
			}
		}
	})
}

// If the comparison of a range fails for a key, that key is a condition of the transaction.
func TestARangeThatFailsIsStillTheSame(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		const rounds = 20
		var all sync.WaitGroup
		all.Go(func() { // the comparison of the range fails at every second revision, and the other key records which
			for i := range rounds {
				sign := []string{"fails", "holds"}[i%2]
				_, err := c.Txn(ctx(t)).Then(clientv3.OpPut("range/1", sign), clientv3.OpPut("sign", sign)).Commit()
				if err != nil {
					t.Error(err)
				}
			}
		})
		for range rounds {
			r, err := c.Txn(ctx(t)).If(clientv3.Compare(clientv3.Value("range/"), "=", "holds").WithPrefix()).
				Else(clientv3.OpGet("sign"), clientv3.OpPut("seen", "")).Commit()
			if status.Code(err) == codes.Unimplemented || err == nil && r.Succeeded {
				continue // there was no key yet, or the comparison holds
			}
			if err != nil {
				t.Fatal(err)
			}
			if kvs := r.Responses[0].GetResponseRange().Kvs; len(kvs) != 1 || string(kvs[0].Value) != "fails" {
				t.Errorf("a range that fails, in a transaction that sees %v", kvs)
			}
		}
		all.Wait()
	})
}
