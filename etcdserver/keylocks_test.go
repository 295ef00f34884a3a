package etcdserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/inmem"
)

// counted is a store whose swaps are slow and counted.
type counted struct {
	storage.Backend
	history.Historian
	storage.Transactor
	swaps  atomic.Int64
	takes  time.Duration
	isDown atomic.Bool // it does not answer
}

func (c *counted) Swap(ctx context.Context, swap history.Swap) (history.SwapResult, error) {
	c.swaps.Add(1)
	select {
	case <-time.After(c.takes):
		if c.isDown.Load() {
			return history.SwapResult{}, storage.ErrInconsistent
		}
		return c.Historian.Swap(ctx, swap)
	case <-ctx.Done():
		return history.SwapResult{}, errors.Join(storage.ErrInconsistent, ctx.Err())
	}
}

// putOne puts a key, by a transaction if txn is set.
func putOne(ctx context.Context, s *etcdserver.Server, r *pb.PutRequest, txn bool) (*pb.PutResponse, error) {
	if !txn {
		return s.Put(ctx, r)
	}
	answer, err := s.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: r}}}})
	if err != nil {
		return nil, err
	}
	return answer.Responses[0].GetResponsePut(), nil
}

// Concurrent puts and deletions of one key do not overtake each other again and again: each finishes after a few reads of the store.
func TestPutsOfOneKeyTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inmem.New(nil)
		defer b.Close()
		h, ok := storage.As[history.Historian](b)
		if !ok {
			t.Fatal("memory has no history")
		}
		store := &counted{Backend: b, Historian: h, Transactor: b, takes: 10 * time.Millisecond}
		s, err := etcdserver.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		const callers = 40
		var all sync.WaitGroup
		var put, deleted atomic.Int64
		for i := range callers {
			all.Go(func() {
				if i%8 == 0 {
					r, err := s.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("hot")})
					if err != nil {
						t.Error(err)
						return
					}
					deleted.Add(r.Deleted)
					return
				}
				r, err := putOne(t.Context(), s, &pb.PutRequest{Key: []byte("hot"), Value: fmt.Append(nil, i), PrevKv: true}, i%2 == 1)
				if err != nil {
					t.Error(err)
					return
				}
				if r.PrevKv == nil {
					put.Add(1)
				}
			})
		}
		all.Wait()
		r, err := s.Range(t.Context(), &pb.RangeRequest{Key: []byte("hot")})
		if err != nil || put.Load() != deleted.Load()+r.Count {
			t.Errorf("the key was created %d times and deleted %d times, and %d remain, %v", put.Load(), deleted.Load(), r.Count, err)
		}
		if swaps := store.swaps.Load(); swaps > 2*callers {
			t.Errorf("%d callers have swapped %d times", callers, swaps)
		}
		// All waiters of a store that does not answer wait at the same time.
		store.takes = 30 * time.Second
		store.isDown.Store(true)
		var failed atomic.Int64
		for range callers {
			all.Go(func() {
				if _, err := s.Put(t.Context(), &pb.PutRequest{Key: []byte("hot")}); err != nil {
					failed.Add(1)
				}
			})
		}
		<-time.After(40 * time.Second)
		if n := failed.Load(); n != callers {
			t.Errorf("of %d callers, %d got a timeout", callers, n)
		}
		all.Wait()
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Put(cancelled, &pb.PutRequest{Key: []byte("hot")}); err == nil {
			t.Error("a call has put a key after its end")
		}
	})
}
