package etcd

import (
	"context"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage/driver"
)

func (l *layout) noteKey(name string) string { return string(l.meta) + "journal/" + name }

// ReadNote implements driver.Mover.
func (b *handle) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	kv, err := b.getNote(ctx, b.layout.noteKey(name))
	if kv == nil {
		return nil, "", err
	}
	return kv.Value, strconv.FormatInt(kv.ModRevision, 10), nil
}

func (b *handle) getNote(ctx context.Context, key string) (kv *mvccpb.KeyValue, err error) {
	err = b.call(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return b.kv.Get(ctx, key) })
		if err == nil {
			kv = first(resp.Kvs)
		}
		return err
	})
	return kv, err
}

// WriteNote implements driver.Mover.
func (b *handle) WriteNote(ctx context.Context, name string, value []byte, revision string) (next string, err error) {
	key := b.layout.noteKey(name)
	rev, ok := parseRevision(revision)
	if !ok {
		return "", driver.Conflict(name)
	}
	err = b.call(ctx, func(ctx context.Context) error {
		// Repeated after a lost answer, it may meet itself; the caller then reads.
		resp, err := retry(ctx, func(ctx context.Context) (*pb.TxnResponse, error) {
			return b.txn(ctx, &pb.TxnRequest{
				Compare: []*pb.Compare{unchanged([]byte(key), rev)},
				Success: []*pb.RequestOp{opPut([]byte(key), value)},
			})
		})
		switch {
		case err != nil:
			return err
		case !resp.Succeeded:
			return driver.Conflict(name)
		}
		b.answered(resp.Header.Revision)
		next = strconv.FormatInt(resp.Header.Revision, 10)
		return nil
	})
	return next, err
}

// DeleteNote implements driver.Mover.
func (b *handle) DeleteNote(ctx context.Context, name, revision string) error {
	key := b.layout.noteKey(name)
	rev, _ := parseRevision(revision)
	return b.call(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, func(ctx context.Context) (*pb.TxnResponse, error) {
			return b.txn(ctx, &pb.TxnRequest{
				Compare: []*pb.Compare{unchanged([]byte(key), rev)},
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

// parseRevision reads a note's revision, 0 for none.
func parseRevision(text string) (rev int64, ok bool) {
	if text == "" {
		return 0, true
	}
	rev, err := strconv.ParseInt(text, 10, 64)
	return rev, err == nil && rev > 0
}

// call runs do with a context that ends with the handle.
func (b *handle) call(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return do(ctx)
}
