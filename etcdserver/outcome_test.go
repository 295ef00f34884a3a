package etcdserver_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// interrupted is a store with functions that run before or after its next changes.
type interrupted struct {
	storage.Backend
	history.Historian
	storage.Transactor
	beforeCommit, beforeSwap, afterChange func() error
}

func (i *interrupted) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if err := runOnce(&i.beforeCommit); err != nil {
		return nil, err
	}
	stored, err := i.Transactor.Commit(ctx, ops)
	if lost := runOnce(&i.afterChange); lost != nil && err == nil {
		return nil, lost
	}
	return stored, err
}

func (i *interrupted) Swap(ctx context.Context, swap history.Swap) (history.SwapResult, error) {
	if err := runOnce(&i.beforeSwap); err != nil {
		return history.SwapResult{}, err
	}
	swapped, err := i.Historian.Swap(ctx, swap)
	if lost := runOnce(&i.afterChange); lost != nil && err == nil {
		return history.SwapResult{}, lost
	}
	return swapped, err
}

func runOnce(f *func() error) error {
	run := *f
	if *f = nil; run == nil {
		return nil
	}
	return run()
}

func newInterrupted(t *testing.T) (*interrupted, *etcdserver.Server) {
	b := inmem.New(nil)
	t.Cleanup(func() { _ = b.Close() }) // never fails
	h, ok := storage.As[history.Historian](b)
	if !ok {
		t.Fatal("memory has no history")
	}
	i := &interrupted{Backend: b, Historian: h, Transactor: b}
	s, err := etcdserver.New(i, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return i, s
}

// The answer to a change is lost, and the history that would show its outcome has been compacted. The change is not repeated.
func TestLostAnswerWithoutHistory(t *testing.T) {
	t.Parallel()
	key, other := []byte("k"), []byte("other")
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}}
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}
	isAbsent := &pb.Compare{Key: key, Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{}}
	for name, change := range map[string]func(ctx context.Context, s *etcdserver.Server) (any, error){
		"create": func(ctx context.Context, s *etcdserver.Server) (any, error) {
			return s.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{isAbsent}, Success: []*pb.RequestOp{put, get}})
		},
		"delete": func(ctx context.Context, s *etcdserver.Server) (any, error) {
			return s.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: key})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, s := newInterrupted(t)
			var losses atomic.Int32
			lose := func() error {
				losses.Add(1)
				if _, err := s.Put(t.Context(), &pb.PutRequest{Key: other}); err != nil {
					return err
				}
				_, newest, err := i.Revisions(t.Context())
				if err == nil {
					err = i.Compact(t.Context(), newest)
				}
				if err != nil {
					return err
				}
				return fmt.Errorf("%w: %w", storage.ErrInconsistent, storage.ErrCompacted)
			}
			if name == "delete" {
				if _, err := s.Put(t.Context(), &pb.PutRequest{Key: key}); err != nil {
					t.Fatal(err)
				}
			}
			i.afterChange = lose
			answer, err := change(t.Context(), s)
			if status.Code(err) != codes.Unavailable {
				t.Errorf("got %v, %v; expected the code Unavailable", answer, err)
			}
			if losses.Load() != 1 {
				t.Errorf("%d answers were lost", losses.Load())
			}
		})
	}
}

// A deletion of several keys fails after its first deletion. The error does not say that nothing was changed.
func TestPartOfARangeIsDeleted(t *testing.T) {
	t.Parallel()
	i, s := newInterrupted(t)
	put := func(key string) error {
		_, err := s.Put(t.Context(), &pb.PutRequest{Key: []byte(key)})
		return err
	}
	for _, key := range []string{"a", "b", "c"} {
		if err := put(key); err != nil {
			t.Fatal(err)
		}
	}
	i.beforeCommit = func() error {
		if err := put("b"); err != nil { // now each key is deleted alone
			return err
		}
		i.beforeSwap = func() error { i.beforeSwap = func() error { return storage.ErrFenced }; return nil }
		return nil
	}
	answer, err := s.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte("d")})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, %v; expected the code Unavailable", answer, err)
	}
	if r, err := s.Range(t.Context(), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("d")}); err != nil || r.Count != 2 {
		t.Errorf("%d keys remain, %v; expected 2", r.GetCount(), err)
	}
}
