package etcdserver_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Locks and elections of etcd's client work, with sessions that keep their leases alive.
func TestLocksAndElectionsOfClients(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		const holders, turns = 3, 4
		var all sync.WaitGroup
		var mu sync.Mutex
		held, total := 0, 0
		for range holders {
			all.Go(func() {
				session, err := concurrency.NewSession(c)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() {
					if err := session.Close(); err != nil {
						t.Error(err)
					}
				}()
				for range turns {
					lock := concurrency.NewMutex(session, "lock")
					if err := lock.Lock(ctx(t)); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if held++; held != 1 {
						t.Errorf("%d hold the lock", held)
					}
					held--
					total++
					mu.Unlock()
					if err := lock.Unlock(ctx(t)); err != nil {
						t.Error(err)
						return
					}
				}
				e := concurrency.NewElection(session, "election")
				if err := e.Campaign(ctx(t), "me"); err != nil {
					t.Error(err)
					return
				}
				if leader, err := e.Leader(ctx(t)); err != nil || string(leader.Kvs[0].Value) != "me" {
					t.Error(leader, err)
				}
				if err := e.Resign(ctx(t)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if total != holders*turns {
			t.Errorf("the lock was held %d times", total)
		}
	})
}

// Transfers by etcd's software transactional memory, by clients of two servers, lose nothing, and every read sees a complete state.
func TestTransfersAreAtomic(t *testing.T) {
	t.Parallel()
	for name, url := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.Open(t, url(t))
			transfers(t, client(t, serve(t, b, nil)), client(t, serve(t, b, nil)))
		})
	}
}

func transfers(t *testing.T, clients ...*clientv3.Client) {
	t.Helper()
	const accounts, each, rounds = 4, 100, 10
	for i := range accounts {
		put(t, clients[0], fmt.Sprint("account/", i), strconv.Itoa(each))
	}
	sum := func(kvs *clientv3.GetResponse) (total int) {
		for _, kv := range kvs.Kvs {
			n, err := strconv.Atoi(string(kv.Value))
			if err != nil {
				t.Error(err)
			}
			total += n
		}
		return total
	}
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			for n := range rounds {
				from, to := fmt.Sprint("account/", (i+n)%accounts), fmt.Sprint("account/", (i+n+1+n%2)%accounts)
				_, err := concurrency.NewSTM(c, func(s concurrency.STM) error {
					a, errA := strconv.Atoi(s.Get(from))
					b, errB := strconv.Atoi(s.Get(to))
					s.Put(from, strconv.Itoa(a-1))
					s.Put(to, strconv.Itoa(b+1))
					return errors.Join(errA, errB)
				}, concurrency.WithIsolation(concurrency.Serializable))
				if err != nil {
					t.Error(err)
					return
				}
				r, err := c.Get(ctx(t), "account/", clientv3.WithPrefix())
				if err != nil || sum(r) != accounts*each {
					t.Errorf("the sum is %d, %v", sum(r), err)
					return
				}
			}
		})
	}
	all.Wait()
}

// Of two transactions that each compare the key that the other one changes, at most one succeeds.
func TestTransactionsAreNotSkewed(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		for range 12 {
			put(t, c, "a", "on duty")
			put(t, c, "b", "on duty")
			var done [2]bool
			var both sync.WaitGroup
			for i, keys := range [][]string{{"a", "b"}, {"b", "a"}} {
				both.Go(func() {
					r, err := c.Txn(ctx(t)).If(clientv3.Compare(clientv3.Value(keys[0]), "=", "on duty")).
						Then(clientv3.OpPut(keys[1], "at home")).Commit()
					if err != nil {
						t.Error(err)
						return
					}
					done[i] = r.Succeeded
				})
			}
			both.Wait()
			if done[0] == done[1] {
				t.Fatalf("of two transactions that exclude each other, these were carried out: %v", done)
			}
		}
	})
}

// No key remains of a lease that is revoked while keys are being attached to it.
func TestNothingIsLeftOfARevokedLease(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		for range 20 {
			id := grant(t, c, 3600)
			var all sync.WaitGroup
			for w := range 4 {
				all.Go(func() {
					for n := 0; ; n++ {
						_, err := c.Put(ctx(t), fmt.Sprintf("leased/%d-%d", w, n), "", clientv3.WithLease(id))
						if errors.Is(err, rpctypes.ErrLeaseNotFound) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			if _, err := c.Revoke(ctx(t), id); err != nil {
				t.Error(err)
			}
			all.Wait()
			left, err := c.Get(ctx(t), "leased/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || left.Count != 0 {
				t.Fatalf("%d keys remain, %v", left.Count, err)
			}
		}
	})
}

// The deletion of a range with more keys than a transaction allows deletes all of them.
func TestDeletionOfManyKeys(t *testing.T) {
	t.Parallel()
	for name, url := range aloneOn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.Open(t, url(t))
			transactor, ok := storage.As[storage.Transactor](b)
			if !ok {
				t.Fatal("the store has no transactions")
			}
			deletesAll(t, client(t, serve(t, b, nil)), transactor.MaxOps()+10)
		})
	}
}

func deletesAll(t *testing.T, c *clientv3.Client, keys int) {
	t.Helper()
	var ops []clientv3.Op
	for i := range keys {
		ops = append(ops, clientv3.OpPut(fmt.Sprintf("many/%04d", i), "x"))
	}
	for some := range slices.Chunk(ops, 40) {
		if _, err := c.Txn(ctx(t)).Then(some...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := c.Delete(ctx(t), "many/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	if err != nil || int(r.Deleted) != keys || len(r.PrevKvs) != keys {
		t.Fatalf("%d of %d keys were deleted, %v", r.Deleted, keys, err)
	}
	left, err := c.Get(ctx(t), "many/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count != 0 || left.Header.Revision != r.Header.Revision {
		t.Errorf("%d keys remain at revision %d, deleted at %d, %v", left.Count, left.Header.Revision, r.Header.Revision, err)
	}
}
