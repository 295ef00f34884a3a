package etcd

import (
	"context"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage/internal/handover"
)

var _ handover.Store = (*Backend)(nil)

// The key that says where the store has moved to. Every transaction that changes resources compares its absence.
func (l *layout) movedKey() string { return string(l.meta) + "moved" }

func (l *layout) noteKey(name string) string { return string(l.meta) + "journal/" + name }

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
	return b.handover(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, func(ctx context.Context) (*clientv3.PutResponse, error) {
			return b.kv.Put(ctx, b.layout.movedKey(), target)
		})
		if err == nil {
			b.answered(resp.Header.Revision)
		}
		return err
	})
}

// Unfence opens the store again.
func (b *Backend) Unfence(ctx context.Context) error {
	return b.handover(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, func(ctx context.Context) (*clientv3.DeleteResponse, error) {
			return b.kv.Delete(ctx, b.layout.movedKey())
		})
		if err == nil {
			b.answered(resp.Header.Revision)
		}
		return err
	})
}

// Fenced tells whether the store is closed for writing, and where its data went.
func (b *Backend) Fenced(ctx context.Context) (target string, fenced bool, err error) {
	kv, err := b.getNote(ctx, b.layout.movedKey())
	if kv == nil {
		return "", false, err
	}
	return string(kv.Value), true, nil
}

// ReadJournal returns a note of the tool that moves data, and its revision.
func (b *Backend) ReadJournal(ctx context.Context, name string) (value []byte, revision string, err error) {
	kv, err := b.getNote(ctx, b.layout.noteKey(name))
	if kv == nil {
		return nil, "", err
	}
	return kv.Value, strconv.FormatInt(kv.ModRevision, 10), nil
}

func (b *Backend) getNote(ctx context.Context, key string) (kv *mvccpb.KeyValue, err error) {
	err = b.handover(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return b.kv.Get(ctx, key) })
		if err == nil {
			kv = first(resp.Kvs)
		}
		return err
	})
	return kv, err
}

// WriteJournal writes a note if it has that revision.
func (b *Backend) WriteJournal(ctx context.Context, name string, value []byte, revision string) (next string, err error) {
	key := b.layout.noteKey(name)
	rev, ok := parseRevision(revision)
	if !ok {
		return "", handover.Conflict(name)
	}
	err = b.handover(ctx, func(ctx context.Context) error {
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
			return handover.Conflict(name)
		}
		b.answered(resp.Header.Revision)
		next = strconv.FormatInt(resp.Header.Revision, 10)
		return nil
	})
	return next, err
}

// DeleteJournal removes a note if it has that revision.
func (b *Backend) DeleteJournal(ctx context.Context, name, revision string) error {
	key := b.layout.noteKey(name)
	rev, _ := parseRevision(revision)
	return b.handover(ctx, func(ctx context.Context) error {
		resp, err := retry(ctx, func(ctx context.Context) (*pb.TxnResponse, error) {
			return b.txn(ctx, &pb.TxnRequest{
				Compare: []*pb.Compare{unchanged([]byte(key), rev)},
				Success: []*pb.RequestOp{opDelete([]byte(key))},
				Failure: []*pb.RequestOp{opGet([]byte(key))},
			})
		})
		if err == nil && !resp.Succeeded && first(resp.Responses[0].GetResponseRange().Kvs) != nil {
			return handover.Conflict(name)
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

// handover bounds a call and carries it out.
func (b *Backend) handover(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return do(ctx)
}
