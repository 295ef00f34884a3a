package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// leaderKV asks only members that know a leader. Without that, a member that is cut off keeps a request for seven seconds
// before it says that it cannot carry it out, while another could have done so at once.
type leaderKV struct{ clientv3.KV }

// Get is the client's. A serializable read is what a member without a leader can still answer.
func (kv leaderKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if op := clientv3.OpGet(key, opts...); !op.IsSerializable() {
		ctx = clientv3.WithRequireLeader(ctx)
	}
	return kv.KV.Get(ctx, key, opts...)
}

// Put is the client's.
func (kv leaderKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return kv.KV.Put(clientv3.WithRequireLeader(ctx), key, value, opts...)
}
