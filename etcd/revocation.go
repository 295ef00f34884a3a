package etcd

import (
	"context"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// revocation is a key whose mod revision every transaction of a handle compares. Advancing it ensures that no transaction sent before is
// applied later. It advances only after a lost answer. A prefix has at most 256 such keys. If one of several handles that share a
// revocation advances it, the others only repeat a request.
type revocation struct {
	*conn
	key       string
	rev       atomic.Int64  // its mod revision as far as known; 0: it does not exist
	advancing chan struct{} // holds an element while the key is written
}

func newRevocation(c *conn, slot byte) *revocation {
	return &revocation{conn: c, key: c.layout.revocationKey(slot), advancing: make(chan struct{}, 1)}
}

func (r *revocation) position() int64             { return r.rev.Load() }
func (r *revocation) holds(rev int64) *pb.Compare { return compareRevision([]byte(r.key), rev) }
func (r *revocation) get() *pb.RequestOp          { return opGet([]byte(r.key)) }

// learn records a mod revision. It only increases, since the key is never deleted.
func (r *revocation) learn(rev int64) {
	for {
		old := r.rev.Load()
		if rev <= old || r.rev.CompareAndSwap(old, rev) {
			return
		}
	}
}

// observeFailure records the key as read by a failed transaction. It reports whether the transaction failed because the key has advanced.
func (r *revocation) observeFailure(expected int64, kvs []*mvccpb.KeyValue) bool {
	var rev int64
	if kv := first(kvs); kv != nil {
		rev = kv.ModRevision
	}
	if rev < expected {
		// The cluster was restored from a backup. No request from before the restore is in flight any more.
		r.rev.CompareAndSwap(expected, rev)
	} else {
		r.learn(rev)
	}
	return rev != expected
}

// advance writes the key, unless its position has changed since sent.
func (r *revocation) advance(ctx context.Context, sent int64) error {
	select {
	case r.advancing <- struct{}{}:
		defer func() { <-r.advancing }()
	case <-ctx.Done():
		return unavailable(ctx, nil)
	}
	if r.position() != sent {
		return nil
	}
	resp, err := retry(ctx, r.retries, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return r.kv.Put(ctx, r.key, "")
	})
	if err != nil {
		return err
	}
	r.recordRevision(resp.Header.Revision)
	r.learn(resp.Header.Revision)
	return nil
}
