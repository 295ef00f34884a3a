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
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// mover implements driver.GuardedMover.
type mover struct{ *conn }

// ReadNote implements driver.Mover.
func (m mover) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	kv, err := m.getNote(ctx, m.layout.noteKey(name))
	if kv == nil {
		return nil, "", err
	}
	return kv.Value, strconv.FormatInt(kv.ModRevision, 10), nil
}

func (m mover) getNote(ctx context.Context, key string) (kv *mvccpb.KeyValue, err error) {
	err = m.call(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, m.retries, func(ctx context.Context) (*clientv3.GetResponse, error) { return m.kv.Get(ctx, key) })
		if err == nil {
			kv = first(resp.Kvs)
		}
		return err
	})
	return kv, err
}

// WriteNote implements driver.Mover.
func (m mover) WriteNote(ctx context.Context, name string, value []byte, revision string) (next string, err error) {
	key := m.layout.noteKey(name)
	rev, ok := parseRevision(revision)
	if !ok {
		return "", driver.Conflict(name)
	}
	err = m.call(ctx, func(ctx context.Context) error {
		// A retry after a lost answer may conflict with the first attempt. The caller then reads the note.
		resp, err := retry(ctx, m.retries, func(ctx context.Context) (*pb.TxnResponse, error) {
			return m.txn(ctx, &pb.TxnRequest{
				Compare: []*pb.Compare{compareRevision([]byte(key), rev)},
				Success: []*pb.RequestOp{opPut([]byte(key), value)},
			})
		})
		switch {
		case err != nil:
			return err
		case !resp.Succeeded:
			return driver.Conflict(name)
		}
		m.recordRevision(resp.Header.Revision)
		next = strconv.FormatInt(resp.Header.Revision, 10)
		return nil
	})
	return next, err
}

// DeleteNote implements driver.Mover.
func (m mover) DeleteNote(ctx context.Context, name, revision string) error {
	key := m.layout.noteKey(name)
	rev, _ := parseRevision(revision)
	return m.call(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, m.retries, func(ctx context.Context) (*pb.TxnResponse, error) {
			return m.txn(ctx, &pb.TxnRequest{
				Compare: []*pb.Compare{compareRevision([]byte(key), rev)},
				Success: []*pb.RequestOp{opDelete([]byte(key))},
				Failure: []*pb.RequestOp{opGet([]byte(key))},
			})
		})
		if err == nil && !resp.Succeeded && first(resp.Responses[0].GetResponseRange().Kvs) != nil {
			return driver.Conflict(name)
		}
		return err
	})
}

// parseRevision parses the revision of a note. An empty text is 0: the note does not exist.
func parseRevision(text string) (rev int64, ok bool) {
	if text == "" {
		return 0, true
	}
	rev, err := strconv.ParseInt(text, 10, 64)
	return rev, err == nil && rev > 0
}

// guard is a driver.Guard as a comparison. A nil guard compares nothing.
type guard struct {
	*driver.Guard
	key []byte
	rev int64
}

// guardOf returns the guard in a context, or nil.
func guardOf(ctx context.Context, l *layout) (*guard, error) {
	g := driver.GuardOf(ctx)
	if g == nil {
		return nil, nil
	}
	rev, ok := parseRevision(g.Revision)
	if !ok {
		return nil, g.Superseded()
	}
	return &guard{g, []byte(l.noteKey(g.Note)), rev}, nil
}

// size returns the number of bytes that the guard adds to a request.
func (g *guard) size() int {
	if g == nil {
		return 0
	}
	return 2 * (len(g.key) + opOverhead)
}

// compare prepends the comparison of the guard.
func (g *guard) compare(others []*pb.Compare) []*pb.Compare {
	if g == nil {
		return others
	}
	return append([]*pb.Compare{compareRevision(g.key, g.rev)}, others...)
}

// readRequests appends a read of the guard's note to others, the reads that a transaction does if its comparisons fail.
func (g *guard) readRequests(others []*pb.RequestOp) []*pb.RequestOp {
	if g == nil {
		return others
	}
	return append(others, opGet(g.key))
}

// readError returns the error of the guard if it does not hold. read has the results of these reads; the note is the last one.
func (g *guard) readError(read []*pb.ResponseOp) error {
	if g == nil {
		return nil
	}
	var rev int64
	if kv := first(read[len(read)-1].GetResponseRange().Kvs); kv != nil {
		rev = kv.ModRevision
	}
	if rev != g.rev {
		return g.Superseded()
	}
	return nil
}

// refusal returns the error of a request that found a fence, and nil without a fence or if the fence admits the request's guard.
func (g *guard) refusal(fence *mvccpb.KeyValue) error {
	switch {
	case fence == nil:
		return nil
	case g == nil:
		return driver.DecodeFence(string(fence.Value)).Refusal(nil)
	}
	return driver.DecodeFence(string(fence.Value)).Refusal(g.Guard)
}

// SetFence implements driver.Mover.
func (m mover) SetFence(ctx context.Context, target *string) error {
	var fence *driver.Fence
	if target != nil {
		fence = &driver.Fence{Target: *target}
	}
	for {
		state, err := m.Fence(ctx)
		if err != nil {
			return err
		}
		_, err = m.SetFenceAt(ctx, fence, state.Epoch)
		if errors.Is(err, errOvertaken) {
			return nil
		}
		if !errors.Is(err, storage.ErrCASFailure) {
			return err
		}
	}
}

// Guards implements driver.GuardedMover. A guard is an additional comparison in each transaction.
func (mover) Guards() {}

// errOvertaken reports that the fence was changed as requested, and then changed again by another caller.
var errOvertaken = fmt.Errorf("the fence was changed, then changed again by another caller: %w", storage.ErrCASFailure)

const (
	tokenLen = 26 // of rand.Text
	// maxTokens is the number of tokens of earlier changes that the epoch's key keeps.
	maxTokens = 8
)

// SetFenceAt implements driver.GuardedMover. The epoch's key contains the tokens of the last changes, so a retry after a lost answer
// recognizes a change that was applied: no change is made twice.
func (m mover) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (next string, err error) {
	change := opDelete([]byte(m.layout.fenceKey()))
	if fence != nil {
		change = opPut([]byte(m.layout.fenceKey()), []byte(fence.Encode()))
	}
	key, token := []byte(m.layout.epochKey()), rand.Text()
	kv, err := m.getNote(ctx, string(key))
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
	err = m.call(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, m.retries, func(ctx context.Context) (*pb.TxnResponse, error) {
			return m.txn(ctx, &pb.TxnRequest{
				Compare: []*pb.Compare{compareRevision(key, rev)},
				Success: []*pb.RequestOp{change, opPut(key, value)},
				Failure: []*pb.RequestOp{opGet(key)},
			})
		})
		if err != nil {
			return err
		}
		m.recordRevision(resp.Header.Revision)
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

// epochOf returns the epoch of the epoch's key. It is empty if the fence was never set.
func epochOf(kv *mvccpb.KeyValue) string {
	if kv == nil {
		return ""
	}
	return strconv.FormatInt(kv.ModRevision, 10)
}

// Fence implements driver.Mover.
func (m mover) Fence(ctx context.Context) (state driver.FenceState, err error) {
	err = m.call(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, m.retries, func(ctx context.Context) (*pb.TxnResponse, error) {
			return m.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{m.layout.getFence(), opGet([]byte(m.layout.epochKey()))}})
		})
		if err != nil {
			return err
		}
		m.recordRevision(resp.Header.Revision)
		if kv := first(resp.Responses[0].GetResponseRange().Kvs); kv != nil {
			state.Fence, state.Closed = driver.DecodeFence(string(kv.Value)), true
		}
		state.Epoch = epochOf(first(resp.Responses[1].GetResponseRange().Kvs))
		return nil
	})
	return state, err
}
