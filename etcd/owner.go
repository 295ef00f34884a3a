package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Children implements driver.Driver. The edges of an owner are neighbours, in the order of the children's keys.
func (b *handle) Children(ctx context.Context, owner driver.Key, uid string) ([]*resourcepb.ID, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return again(ctx, func() ([]*resourcepb.ID, error) { return b.references(ctx, ownerHash(owner, uid)) })
}

func (b *handle) references(ctx context.Context, owner [16]byte) ([]*resourcepb.ID, error) {
	from := b.layout.edgesOf(owner)
	next, end := string(from), string(key.PrefixEnd(from))
	var refs []*resourcepb.ID
	for rev, more := int64(0), true; more; {
		get := func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
			opts = append(opts, clientv3.WithRange(end), clientv3.WithLimit(maxChunk), clientv3.WithRev(rev))
			return b.kv.Get(ctx, next, opts...)
		}
		read := eventually
		if rev != 0 {
			read = linearizably
		}
		resp, err := read(ctx, b, get)
		if err != nil {
			return nil, err
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			child, lookUp, err := b.layout.parseEdge(kv)
			if err != nil {
				return nil, err
			}
			if lookUp {
				if err := b.lookUpGroupVersion(ctx, child, rev); err != nil {
					return nil, err
				}
			}
			refs = append(refs, child)
			next = string(kv.Key) + "\x00"
		}
		more = resp.More
	}
	return refs, nil
}

// lookUpGroupVersion reads the group version of a child at a revision.
func (b *handle) lookUpGroupVersion(ctx context.Context, child *resourcepb.ID, rev int64) error {
	k := key.Of(child)
	resp, err := linearizably(ctx, b, func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
		return b.kv.Get(ctx, string(b.layout.resource(k)), append(opts, clientv3.WithRev(rev))...)
	})
	if err != nil {
		return err
	}
	kv := first(resp.Kvs)
	if kv == nil {
		return fmt.Errorf("the owner edge of %v points to nothing", k)
	}
	_, res, err := b.layout.decode(kv)
	if err != nil {
		return err
	}
	child.Type.GroupVersion = res.GetId().GetType().GetGroupVersion()
	return nil
}
