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
	"github.com/ashlar-dev/storage/internal/handover"
)

var _ handover.EpochFencer = (*Backend)(nil)

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
		return handover.Refused(string(kv.Value))
	}
	return nil
}

// Fence closes the store for writing, for the tool that moves its data to another one.
func (b *Backend) Fence(ctx context.Context, target string) error {
	return b.setFence(ctx, opPut([]byte(b.layout.movedKey()), []byte(target)))
}

// Unfence opens the store again.
func (b *Backend) Unfence(ctx context.Context) error {
	return b.setFence(ctx, opDelete([]byte(b.layout.movedKey())))
}

// setFence changes the fence, whatever it is.
func (b *Backend) setFence(ctx context.Context, change *pb.RequestOp) error {
	for {
		state, err := b.FenceState(ctx)
		if err != nil {
			return err
		}
		_, err = b.setFenceAt(ctx, change, state.Epoch)
		if errors.Is(err, errOvertaken) {
			return nil
		}
		if !errors.Is(err, storage.ErrCASFailure) {
			return err
		}
	}
}

// FenceAt is Fence if the fence has that epoch.
func (b *Backend) FenceAt(ctx context.Context, target, epoch string) (string, error) {
	return b.setFenceAt(ctx, opPut([]byte(b.layout.movedKey()), []byte(target)), epoch)
}

// UnfenceAt is Unfence if the fence has that epoch.
func (b *Backend) UnfenceAt(ctx context.Context, epoch string) (string, error) {
	return b.setFenceAt(ctx, opDelete([]byte(b.layout.movedKey())), epoch)
}

// errOvertaken says that a change of the fence was made, and that somebody has changed it since.
var errOvertaken = fmt.Errorf("the fence has been changed since: %w", storage.ErrCASFailure)

const (
	tokenLen = 26 // of rand.Text
	// maxTokens is how many of the changes before it a change can still be found behind.
	maxTokens = 8
)

// setFenceAt changes the fence if it has that epoch. The epoch's key holds a token of each of the last changes, by which a
// change whose answer was lost is found again: it is never made twice.
func (b *Backend) setFenceAt(ctx context.Context, change *pb.RequestOp, epoch string) (next string, err error) {
	key, token := []byte(b.layout.epochKey()), rand.Text()
	kv, err := b.getNote(ctx, string(key))
	if err != nil {
		return "", err
	}
	if epochOf(kv) != epoch {
		return "", handover.Conflict(handover.FenceNote)
	}
	var rev int64
	value := []byte(token)
	if kv != nil {
		rev = kv.ModRevision
		value = append(value, kv.Value[:min(len(kv.Value), maxTokens*tokenLen)]...)
	}
	err = b.handover(ctx, func(ctx context.Context) error {
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
			return handover.Conflict(handover.FenceNote)
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

// Fenced tells whether the store is closed for writing, and where its data went.
func (b *Backend) Fenced(ctx context.Context) (target string, fenced bool, err error) {
	state, err := b.FenceState(ctx)
	return state.Target, state.Closed, err
}

// FenceState is Fenced, with the fence's epoch.
func (b *Backend) FenceState(ctx context.Context) (state handover.FenceState, err error) {
	err = b.handover(ctx, func(ctx context.Context) error {
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
