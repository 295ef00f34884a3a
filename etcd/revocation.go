package etcd

import (
	"context"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// fence is a key whose mod revision every transaction of a handle compares. Moving it makes sure that no transaction which was
// sent before is still going to be applied. There are 256 such keys at most under a prefix; handles that happen to share one
// disturb each other only by a repeated request when it moves. It moves only after an answer was lost.
type fence struct {
	key string
	rev atomic.Int64  // its mod revision as far as known; 0: it does not exist
	one chan struct{} // held while it is being moved
}

func (f *fence) position() int64             { return f.rev.Load() }
func (f *fence) holds(rev int64) *pb.Compare { return compareRevision([]byte(f.key), rev) }
func (f *fence) get() *pb.RequestOp          { return opGet([]byte(f.key)) }

// learn notes a mod revision. It only rises, since nobody deletes the key.
func (f *fence) learn(rev int64) {
	for {
		old := f.rev.Load()
		if rev <= old || f.rev.CompareAndSwap(old, rev) {
			return
		}
	}
}

// observeFailure notes what a failed comparison has returned, and reports whether the fence was why it failed.
func (f *fence) observeFailure(expected int64, kvs []*mvccpb.KeyValue) bool {
	var rev int64
	if kv := first(kvs); kv != nil {
		rev = kv.ModRevision
	}
	if rev < expected {
		// The cluster was restored from a backup, and with it what was under way is gone.
		f.rev.CompareAndSwap(expected, rev)
	} else {
		f.learn(rev)
	}
	return rev != expected
}

// pass moves the fence, unless it was moved since it stood at sent.
func (b *handle) pass(ctx context.Context, sent int64) error {
	select {
	case b.fence.one <- struct{}{}:
		defer func() { <-b.fence.one }()
	case <-ctx.Done():
		return unavailable(ctx, nil)
	}
	if b.fence.position() != sent {
		return nil
	}
	resp, err := retry(ctx, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return b.kv.Put(ctx, b.fence.key, "")
	})
	if err != nil {
		return err
	}
	b.recordRevision(resp.Header.Revision)
	b.fence.learn(resp.Header.Revision)
	return nil
}

func (f *fence) init(key string) { f.key, f.one = key, make(chan struct{}, 1) }
