package etcd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// The key that says where the store has moved to. Every transaction that changes resources compares its absence.
func (l *layout) movedKey() string { return string(l.meta) + "moved" }

// The key that is written whenever the store is closed or opened, and never deleted. Its mod revision is the fence's epoch.
// Closing and opening compare it, so that a request which arrives late, after its answer was given up, changes nothing.
func (l *layout) epochKey() string { return string(l.meta) + "epoch" }

// open compares that the store takes writes.
func (l *layout) open() *pb.Compare { return unchanged([]byte(l.movedKey()), 0) }

func (l *layout) getMoved() *pb.RequestOp { return opGet([]byte(l.movedKey())) }

// refusedBy is the error of a transaction that found the store closed, nil where it is not.
func refusedBy(kvs []*mvccpb.KeyValue) error {
	if kv := first(kvs); kv != nil {
		return driver.FenceError(string(kv.Value))
	}
	return nil
}

// SetFence implements driver.Mover.
func (b *handle) SetFence(ctx context.Context, target *string) error {
	for {
		state, err := b.Fence(ctx)
		if err != nil {
			return err
		}
		_, err = b.SetFenceAt(ctx, target, state.Epoch)
		if errors.Is(err, errOvertaken) {
			return nil
		}
		if !errors.Is(err, storage.ErrCASFailure) {
			return err
		}
	}
}

// Guards implements driver.GuardedMover. A guard is one more comparison in each transaction.
func (*handle) Guards() {}

// errOvertaken says that a change of the fence was made, and that somebody has changed it since.
var errOvertaken = fmt.Errorf("the fence has been changed since: %w", storage.ErrCASFailure)

const (
	tokenLen = 26 // of rand.Text
	// maxTokens is how many of the changes before it a change can still be found behind.
	maxTokens = 8
)

// SetFenceAt implements driver.GuardedMover. The epoch's key holds a token of each of the last changes, by which a
// change whose answer was lost is found again: it is never made twice.
func (b *handle) SetFenceAt(ctx context.Context, target *string, epoch string) (next string, err error) {
	change := opDelete([]byte(b.layout.movedKey()))
	if target != nil {
		change = opPut([]byte(b.layout.movedKey()), []byte(*target))
	}
	key, token := []byte(b.layout.epochKey()), rand.Text()
	kv, err := b.getNote(ctx, string(key))
	if err != nil {
		return "", err
	}
	if epochOf(kv) != epoch {
		return "", driver.Conflict(driver.FenceNote)
	}
	var rev int64
	value := []byte(token)
	if kv != nil {
		rev = kv.ModRevision
		value = append(value, kv.Value[:min(len(kv.Value), maxTokens*tokenLen)]...)
	}
	err = b.call(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, func(ctx context.Context) (*pb.TxnResponse, error) {
			return b.txn(ctx, &pb.TxnRequest{
				Compare: []*pb.Compare{unchanged(key, rev)},
				Success: []*pb.RequestOp{change, opPut(key, value)},
				Failure: []*pb.RequestOp{opGet(key)},
			})
		})
		if err != nil {
			return err
		}
		b.answered(resp.Header.Revision)
		if resp.Succeeded {
			next = strconv.FormatInt(resp.Header.Revision, 10)
			return nil
		}
		now := first(resp.Responses[0].GetResponseRange().Kvs)
		switch {
		case now == nil || !bytes.Contains(now.Value, []byte(token)):
			return driver.Conflict(driver.FenceNote)
		case !bytes.HasPrefix(now.Value, []byte(token)):
			return errOvertaken
		}
		next = epochOf(now)
		return nil
	})
	if err != nil {
		return "", err
	}
	return next, nil
}

// epochOf returns the epoch that the epoch's key stands for.
func epochOf(kv *mvccpb.KeyValue) string {
	if kv == nil {
		return ""
	}
	return strconv.FormatInt(kv.ModRevision, 10)
}

// Fence implements driver.Mover.
func (b *handle) Fence(ctx context.Context) (state driver.FenceState, err error) {
	err = b.call(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, func(ctx context.Context) (*pb.TxnResponse, error) {
			return b.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{b.layout.getMoved(), opGet([]byte(b.layout.epochKey()))}})
		})
		if err != nil {
			return err
		}
		b.answered(resp.Header.Revision)
		if kv := first(resp.Responses[0].GetResponseRange().Kvs); kv != nil {
			state.Target, state.Closed = string(kv.Value), true
		}
		state.Epoch = epochOf(first(resp.Responses[1].GetResponseRange().Kvs))
		return nil
	})
	return state, err
}
