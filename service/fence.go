package service

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/resourcepb"
)

// errFenceOutdated fails the writes with a fence whose lock has another holder, or none.
var errFenceOutdated = errors.New("the caller has lost the lease that its write requires; nothing was written")

// fencedCommits commits the writes of each fence one transaction at a time; concurrent writes share the next transaction. Separate transactions
// would block each other: on some databases a check locks the record of the lock.
type fencedCommits struct {
	mu    sync.Mutex
	lines map[string]*commitLine // by lock and version; a line without callers is removed
}

// commitLine commits the writes of one fence.
type commitLine struct {
	batcher *batch.Batcher[[]storage.Op, []*resourcepb.Resource]
	callers int
}

const (
	maxFencedCalls = 64            // if one of them fails, the others are repeated
	maxFencedBytes = 1<<20 - 1<<12 // all backends permit 1 MiB
)

// fencedCallsOf returns the maximum number of calls in a transaction. Each call has one or two operations.
func fencedCallsOf(tx storage.Transactor) int { return min(maxFencedCalls, (tx.MaxOps()-1)/2) }

// commit applies operations in one transaction, together with the check of a fence.
func (f *fencedCommits) commit(ctx context.Context, tx storage.Transactor, fence *storage.Op, ops []storage.Op) ([]*resourcepb.Resource, error) {
	name := fence.Check.GetTenancy().String() + "\x00" + fence.Check.GetName() + "\x00" + fence.Check.GetUid() + "\x00" + fence.Version
	f.mu.Lock()
	line := f.lines[name]
	if line == nil {
		line = &commitLine{batcher: batch.New(batch.Options[[]storage.Op]{
			MaxCalls: fencedCallsOf(tx), MaxBytes: maxFencedBytes, Size: opsSize, Key: opsKey, WorkerAt: 1 << 30, Direct: true,
		}, func(ctx context.Context, calls []*batch.Call[[]storage.Op, []*resourcepb.Resource]) {
			commitCalls(ctx, tx, *fence, calls)
		})}
		if f.lines == nil {
			f.lines = map[string]*commitLine{}
		}
		f.lines[name] = line
	}
	line.callers++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if line.callers--; line.callers == 0 {
			delete(f.lines, name)
		}
	}()
	return line.batcher.Do(ctx, ops)
}

// opsSize returns the size of the resources of a call.
func opsSize(ops []storage.Op) (size int) {
	for _, op := range ops {
		if op.Write != nil {
			size += proto.Size(op.Write)
		}
	}
	return size
}

// opsKey returns the key that the first operation of a call changes. A transaction must not have two operations on one key.
func opsKey(ops []storage.Op) string {
	id := ops[0].Delete
	if ops[0].Write != nil {
		id = ops[0].Write.GetId()
	}
	return id.GetType().GetGroup() + "\x00" + id.GetType().GetKind() + "\x00" + id.GetTenancy().GetPartition() + "\x00" + id.GetTenancy().GetNamespace() + "\x00" + id.GetName()
}

// commitCalls commits the operations of several calls in one transaction. If one call fails, it gets its error, and the others are repeated.
func commitCalls(ctx context.Context, tx storage.Transactor, fence storage.Op, calls []*batch.Call[[]storage.Op, []*resourcepb.Resource]) {
	for len(calls) > 0 {
		ops := []storage.Op{fence}
		for _, c := range calls {
			ops = append(ops, c.Request...)
		}
		stored, err := tx.Commit(ctx, ops)
		if err == nil {
			at := 1
			for _, c := range calls {
				c.Done(stored[at:at+len(c.Request)], nil)
				at += len(c.Request)
			}
			return
		}
		failed := (*storage.OpError)(nil)
		switch {
		case errors.As(err, &failed) && failed.Index == 0:
			err = errFenceOutdated
		case errors.As(err, &failed) && (len(calls) == 1 || !errors.Is(err, storage.ErrInvalid)): // two calls that change one key are valid alone
			n, index := callAt(calls, failed.Index-1)
			calls[n].Done(nil, &storage.OpError{Index: index, Err: failed.Err})
			calls = append(calls[:n:n], calls[n+1:]...)
			continue
		case len(calls) > 1 && (errors.Is(err, storage.ErrInvalid) || errors.Is(err, storage.ErrTooLarge)):
			// Nothing was changed, and each call may be valid alone.
			for i := range calls {
				commitCalls(ctx, tx, fence, calls[i:i+1:i+1])
			}
			return
		}
		for _, c := range calls {
			c.Done(nil, err)
		}
		return
	}
}

// callAt returns the call of an operation, and the index of the operation in the call.
func callAt(calls []*batch.Call[[]storage.Op, []*resourcepb.Resource], index int) (call, op int) {
	for index >= len(calls[call].Request) {
		index -= len(calls[call].Request)
		call++
	}
	return call, index
}
