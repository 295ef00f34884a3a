package typed_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// A transaction creates, replaces and deletes resources of two types, or none of them. It sets generations and the times of statuses.
func TestTransact(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		counters := typed.New[*wrapperspb.Int64Value](b, counterType)
		timeouts := typed.New[*durationpb.Duration](b, &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Timeout"})
		one := counter{ID: counters.ID(shop, "one"), Data: wrapperspb.Int64(1)}
		two := counter{ID: counters.ID(shop, "two"), Data: wrapperspb.Int64(2)}
		timeout := typed.Object[*durationpb.Duration]{ID: timeouts.ID(shop, "one"), Data: durationpb.New(1)}
		if err := typed.Transact(ctx, b, func(tx *typed.Tx) error {
			return errors.Join(counters.In(tx).Put(&one), counters.In(tx).Put(&two), timeouts.In(tx).Put(&timeout))
		}); err != nil {
			t.Fatal(err)
		}
		if one.Version == "" || one.ID.GetUid() == "" || one.Generation == "" || timeout.Version == "" {
			t.Fatalf("created: %v, %v, expected versions, uids and generations", one, timeout)
		}
		var changed, reported *counter
		err := typed.Transact(ctx, b, func(tx *typed.Tx) (err error) {
			in := counters.In(tx)
			if changed, err = in.Get(counters.ID(shop, "one")); err != nil {
				return err
			}
			if reported, err = in.Get(counters.ID(shop, "two")); err != nil {
				return err
			}
			changed.Data.Value = 3
			reported.Status = map[string]*resourcepb.Status{"me": {ObservedGeneration: reported.Generation}}
			if err := errors.Join(in.Put(changed), in.Put(reported), timeouts.In(tx).Delete(timeout.ID)); err != nil {
				return err
			}
			if _, err := timeouts.In(tx).Get(timeout.ID); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("get after a deletion in the transaction: %v, expected ErrNotFound", err)
			}
			if again, err := in.Get(one.ID); err != nil || again.Data.Value != 3 {
				t.Errorf("get after a put in the transaction: %v, %v, expected 3", again, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		stored, err := counters.Get(ctx, storage.StrongConsistency, one.ID)
		if err != nil || stored.Data.Value != 3 || stored.Generation == one.Generation || stored.Version != changed.Version || stored.Generation != changed.Generation {
			t.Errorf("stored: %v, %v, expected 3 with a new generation, as in %v", stored, err, changed)
		}
		stored, err = counters.Get(ctx, storage.StrongConsistency, two.ID)
		if err != nil || stored.Generation != two.Generation || stored.Status["me"].GetUpdatedAt() == nil || stored.Version == two.Version {
			t.Errorf("stored: %v, %v, expected a status with a time and the generation of %v", stored, err, two)
		}
		if _, err := timeouts.Get(ctx, storage.StrongConsistency, timeout.ID); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the deleted resource: %v, expected ErrNotFound", err)
		}

		var ended *typed.Tx
		for name, fn := range map[string]func(*typed.TxClient[*wrapperspb.Int64Value]) error{
			"the resource exists": func(in *typed.TxClient[*wrapperspb.Int64Value]) error {
				return in.Put(&counter{ID: counters.ID(shop, "one"), Data: wrapperspb.Int64(9)})
			},
			storage.ErrCASFailure.Error(): func(in *typed.TxClient[*wrapperspb.Int64Value]) error { return in.Put(&one) },
			storage.ErrWrongUid.Error(): func(in *typed.TxClient[*wrapperspb.Int64Value]) error {
				other := *changed
				other.ID = counters.ID(shop, "one")
				return in.Put(&other)
			},
			storage.ErrNotFound.Error(): func(in *typed.TxClient[*wrapperspb.Int64Value]) error { return in.Delete(counters.ID(shop, "none")) },
		} {
			err := typed.Transact(ctx, b, func(tx *typed.Tx) error {
				ended = tx
				in := counters.In(tx)
				if _, err := in.Get(two.ID); err != nil {
					t.Error(err)
				}
				if err := in.Put(&counter{ID: counters.ID(shop, "new"), Data: wrapperspb.Int64(9)}); err != nil {
					t.Error(err)
				}
				return fn(in)
			})
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("the transaction returned %v, expected %q", err, name)
			}
		}
		if _, err := counters.Get(ctx, storage.StrongConsistency, counters.ID(shop, "new")); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("a transaction that failed has written: %v", err)
		}
		if _, err := counters.In(ended).Get(one.ID); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a transaction that has ended: %v, expected ErrInvalid", err)
		}
	})
}

// Concurrent transactions move units between two counters. None is lost, and the error of a function belongs to one state.
func TestConcurrentTransactions(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		for _, name := range []string{"a", "b"} {
			if _, err := c.Create(ctx, counter{ID: c.ID(shop, name), Data: wrapperspb.Int64(50)}); err != nil {
				t.Fatal(err)
			}
		}
		wrong := errors.New("the sum is wrong")
		move := func(from, to string, units int64) error {
			return typed.Transact(ctx, b, func(tx *typed.Tx) error {
				x, err := c.In(tx).Get(c.ID(shop, from))
				if err != nil {
					return err
				}
				y, err := c.In(tx).Get(c.ID(shop, to))
				if err != nil {
					return err
				}
				if x.Data.Value+y.Data.Value != 100 {
					return wrong
				}
				x.Data.Value -= units
				y.Data.Value += units
				return errors.Join(c.In(tx).Put(x), c.In(tx).Put(y))
			})
		}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				from, to := "a", "b"
				if i%2 == 1 {
					from, to = to, from
				}
				for range 10 {
					if err := errors.Join(move(from, to, int64(i+1)), move(from, to, 0)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if o, err := c.Get(ctx, storage.StrongConsistency, c.ID(shop, "a")); err != nil || o.Data.Value != 50-10+20-30+40 {
			t.Errorf("a is %v (%v), expected 70", o, err)
		}
	})
}

// Another program creates the resource after the transaction has found it absent.
func TestTransactCreateConflict(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		attempts := 0
		err := typed.Transact(ctx, b, func(tx *typed.Tx) error {
			attempts++
			err := c.In(tx).Put(&counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(1)})
			if attempts == 1 {
				if _, err := c.Create(ctx, counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(2)}); err != nil {
					t.Error(err)
				}
			}
			return err
		})
		if !errors.Is(err, typed.ErrExists) || attempts != 2 {
			t.Errorf("the transaction returned %v after %d attempts, expected ErrExists after 2", err, attempts)
		}
	})
}

// Compaction does not end a lagging watch that returns no earlier states.
func TestLaggingWatchSurvivesCompaction(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		historian, ok := storage.As[history.Historian](b)
		if !ok {
			t.Fatal("the backend keeps no history")
		}
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		made, err := c.Create(ctx, counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(0)})
		if err != nil {
			t.Fatal(err)
		}
		for name, opts := range map[string][]typed.WatchOption{"plain": nil, "with old": {typed.WithOld}} {
			w, err := c.Watch(ctx, shop, "", opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			for range 2 {
				if _, err := w.Next(ctx); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				if _, err := c.Update(ctx, made.ID, func(o *counter) error { o.Data.Value++; return nil }); err != nil {
					t.Fatal(err)
				}
			}
			_, newest, err := historian.Revisions(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := historian.Compact(ctx, newest); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				ev, err := w.Next(ctx)
				if err == nil && ev.New.Data.Value > 0 {
					continue
				}
				if len(opts) == 0 || !errors.Is(err, storage.ErrWatchClosed) {
					t.Errorf("%s: the watch returned %v, %v", name, ev, err)
				}
				break
			}
		}
	})
}

// A transaction deletes a resource and creates it again, once or twice. The store then has the same uid, a new generation and only the new content.
func TestPutAgainAfterDelete(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		old, err := c.Create(ctx, counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(1), Metadata: map[string]string{"k": "v"}})
		if err != nil {
			t.Fatal(err)
		}
		again := counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(2)}
		if err := typed.Transact(ctx, b, func(tx *typed.Tx) error {
			in := c.In(tx)
			if err := in.Delete(old.ID); err != nil {
				return err
			}
			stale := *old
			if err := in.Put(&stale); !errors.Is(err, storage.ErrCASFailure) {
				t.Errorf("put of the deleted version: %v, expected ErrCASFailure", err)
			}
			other := counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(9)}
			other.ID.Uid = "other"
			if err := in.Put(&other); !errors.Is(err, storage.ErrWrongUid) {
				t.Errorf("put with another uid: %v, expected ErrWrongUid", err)
			}
			if err := in.Put(&again); err != nil {
				return err
			}
			if seen, err := in.Get(old.ID); err != nil || seen.Version != "" || len(seen.Metadata) > 0 || seen.Data.Value != 2 {
				t.Errorf("get after the put: %v, %v, expected the new object without a version", seen, err)
			}
			if err := in.Put(&counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(9)}); !errors.Is(err, typed.ErrExists) {
				t.Errorf("another object under the key: %v, expected ErrExists", err)
			}
			again.Data.Value = 3
			return in.Put(&again)
		}); err != nil {
			t.Fatal(err)
		}
		stored, err := c.Get(ctx, storage.StrongConsistency, old.ID)
		if err != nil || stored.Data.Value != 3 || len(stored.Metadata) > 0 || stored.Generation == old.Generation || stored.Version != again.Version {
			t.Errorf("stored: %v, %v, expected 3 in a new generation, as in %v", stored, err, again)
		}
		// The deleted resource, created again and deleted again, is gone.
		if err := typed.Transact(ctx, b, func(tx *typed.Tx) error {
			return errors.Join(c.In(tx).Delete(old.ID), c.In(tx).Put(&counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(9)}), c.In(tx).Delete(old.ID))
		}); err != nil {
			t.Error(err)
		}
		if _, err := c.Get(ctx, storage.StrongConsistency, old.ID); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("after delete, put and delete: %v, expected ErrNotFound", err)
		}
	})
}

// Another writer changes a resource that the transaction has read, whether it was stored or absent. The function is called again, also if it then
// writes only another resource, writes nothing, or fails.
func TestTransactVerifiesReads(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		stop := errors.New("stop")
		for name, end := range map[string]func(in *typed.TxClient[*wrapperspb.Int64Value], sum int64, other *counter) error{
			"writes": func(in *typed.TxClient[*wrapperspb.Int64Value], sum int64, other *counter) error {
				other.Data.Value = sum
				return in.Put(other)
			},
			"reads": func(*typed.TxClient[*wrapperspb.Int64Value], int64, *counter) error { return nil },
			"fails": func(*typed.TxClient[*wrapperspb.Int64Value], int64, *counter) error { return stop },
		} {
			for _, isAbsent := range []bool{false, true} {
				id, otherID := c.ID(shop, name), c.ID(shop, name+"-other")
				write := func(value int64) {
					if _, err := c.Create(ctx, counter{ID: id, Data: wrapperspb.Int64(value)}); err != nil {
						t.Fatal(err)
					}
				}
				if !isAbsent {
					write(1)
				}
				if _, err := c.Create(ctx, counter{ID: otherID, Data: wrapperspb.Int64(100)}); err != nil {
					t.Fatal(err)
				}
				var sums []int64
				err := typed.Transact(ctx, b, func(tx *typed.Tx) error {
					in := c.In(tx)
					other, err := in.Get(otherID)
					if err != nil {
						return err
					}
					sum := other.Data.Value
					one, err := in.Get(id)
					switch {
					case err == nil:
						sum += one.Data.Value
					case !errors.Is(err, storage.ErrNotFound):
						return err
					}
					if sums = append(sums, sum); len(sums) == 1 && isAbsent {
						write(2)
					} else if len(sums) == 1 {
						if _, err := c.Update(ctx, id, func(o *counter) error { o.Data.Value = 2; return nil }); err != nil {
							t.Error(err)
						}
					}
					return end(in, sum, other)
				})
				if want := map[bool]error{true: stop}[name == "fails"]; err != want {
					t.Errorf("%s, absent %v: the transaction returned %v, expected %v", name, isAbsent, err, want)
				}
				if len(sums) != 2 || sums[1] != 102 {
					t.Errorf("%s, absent %v: the function has read %v, expected a second call with 102", name, isAbsent, sums)
				}
				for _, id := range []*resourcepb.ID{id, otherID} {
					if err := c.Delete(ctx, id, typed.Preconditions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}
