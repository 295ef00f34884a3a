package etcd

import (
	"bytes"
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// maxEntryChecks limits the owner entries in a transaction, which also returns their resources.
const maxEntryChecks = 16

// CheckColumns implements driver.ColumnChecker. It reads the owner entries of all owners, present or not. The positions are
// keys of entries without their prefix. A call ends early when it has read driver.PageBytes, so that a slow server answers it in time.
func (r lister) CheckColumns(ctx context.Context, after []byte, limit int) (wrong []driver.Key, next []byte, err error) {
	err = r.call(ctx, func(ctx context.Context) error {
		wrong, next, err = r.checkEntries(ctx, after, limit)
		return err
	})
	return wrong, next, err
}

func (r lister) checkEntries(ctx context.Context, after []byte, limit int) (wrong []driver.Key, next []byte, err error) {
	prefix := r.layout.entries
	from := append(bytes.Clone(prefix), after...)
	if after != nil {
		from = append(from, 0)
	}
	resp, err := linearizably(ctx, r.conn, func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
		return r.kv.Get(ctx, string(from), append(opts, clientv3.WithRange(string(key.PrefixEnd(prefix))), clientv3.WithLimit(int64(limit)), clientv3.WithKeysOnly())...)
	})
	if err != nil {
		return nil, nil, err
	}
	checked := 0
	for size := 0; checked < len(resp.Kvs) && size < driver.PageBytes; {
		n := min(len(resp.Kvs)-checked, maxEntryChecks, r.opts.MaxTxnOps/2)
		found, read, err := r.wrongEntries(ctx, resp.Kvs[checked:checked+n])
		if err != nil {
			return nil, nil, err
		}
		wrong, checked, size = append(wrong, found...), checked+n, size+read
	}
	if resp.More || checked < len(resp.Kvs) {
		next = resp.Kvs[checked-1].Key[len(prefix):]
	}
	return wrong, next, nil
}

// wrongEntries returns the keys of the resources that contradict their owner entries, and the bytes of the resources. It reads both at one
// revision.
func (r lister) wrongEntries(ctx context.Context, entries []*mvccpb.KeyValue) (wrong []driver.Key, size int, err error) {
	children := make([]driver.Key, len(entries))
	var reads []*pb.RequestOp
	for i, kv := range entries {
		if children[i], err = r.layout.childOf(kv.Key); err != nil {
			return nil, 0, err
		}
		reads = append(reads, opGet(kv.Key), opGet(r.layout.resource(children[i])))
	}
	resp, err := retry(ctx, r.retries, func(ctx context.Context) (*pb.TxnResponse, error) {
		return r.txn(ctx, &pb.TxnRequest{Success: reads})
	})
	if err != nil {
		return nil, 0, err
	}
	r.recordRevision(resp.Header.Revision)
	for i, k := range children {
		entry, stored := first(resp.Responses[2*i].GetResponseRange().Kvs), first(resp.Responses[2*i+1].GetResponseRange().Kvs)
		if stored != nil {
			size += len(stored.Value)
		}
		if entry != nil && !r.layout.matches(entry, k, stored) {
			wrong = append(wrong, k)
		}
	}
	return wrong, size, nil
}

// matches reports whether an entry is the owner entry of the resource that is stored under a key. It does if the resource is damaged, because
// reads report that.
func (l *layout) matches(entry *mvccpb.KeyValue, k key.Key, stored *mvccpb.KeyValue) bool {
	if stored == nil {
		return false
	}
	res, err := l.decodeValue(k, stored)
	if damaged := (*storage.DamagedError)(nil); errors.As(err, &damaged) {
		return true
	}
	of := entryOf(res)
	return err == nil && of != nil && bytes.Equal(entry.Key, l.entryKey(of.owner, k)) && bytes.Equal(entry.Value, entryValue(res.GetId()))
}
