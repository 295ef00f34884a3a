package etcd

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// Before implements driver.Historian. A creation had nothing before it, a deletion has brought what it deleted, and what another of
// the events has written is at hand. The rest is read, many keys in one transaction, each at the revision before its event.
func (b *handle) Before(ctx context.Context, events []*event) ([]*driver.Version, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	versions := make([]*driver.Version, len(events))
	written := make(map[key.Key]*event, len(events))
	var wanted []int
	for i, ev := range events {
		last := written[ev.Key]
		switch {
		case ev.Delete && ev.Resource != nil:
			at, _ := b.layout.parseVersion(ev.Key, ev.Resource.GetId().GetUid(), ev.Resource.GetVersion())
			v := version(ev.Key, ev.Resource, ev.CreateRevision, at.rev, ev.Writes)
			versions[i] = &v
		case !ev.Delete && ev.Writes == 1:
		case last != nil && last.CreateRevision == ev.CreateRevision && last.Writes == ev.Writes-1:
			v := version(ev.Key, last.Resource, last.CreateRevision, last.Revision, last.Writes)
			versions[i] = &v
		default:
			wanted = append(wanted, i)
		}
		if delete(written, ev.Key); !ev.Delete && ev.Resource != nil {
			written[ev.Key] = ev
		}
	}
	for len(wanted) > 0 {
		n, size := 0, 0
		for n < len(wanted) && n < min(b.opts.MaxTxnOps, maxReads) && (n == 0 || size < driver.PageBytes) {
			size += events[wanted[n]].Size // what was there before may have another size; mostly it has not
			n++
		}
		if err := b.readBefore(ctx, events, wanted[:n], versions); err != nil {
			return nil, err
		}
		wanted = wanted[n:]
	}
	return versions, nil
}

// readBefore reads what was stored before some of the events.
func (b *handle) readBefore(ctx context.Context, events []*event, wanted []int, versions []*driver.Version) error {
	gets := make([]*pb.RequestOp, len(wanted))
	for i, at := range wanted {
		gets[i] = opGet(b.layout.resource(events[at].Key))
		gets[i].GetRequestRange().Revision = events[at].Revision - 1
	}
	resp, err := retry(ctx, func(ctx context.Context) (*pb.TxnResponse, error) {
		return b.txn(ctx, &pb.TxnRequest{Success: gets})
	})
	if err != nil {
		return err
	}
	b.answered(resp.Header.Revision)
	for i, at := range wanted {
		ev := events[at]
		kv := first(resp.Responses[i].GetResponseRange().Kvs)
		writes := ev.Writes - 1
		if ev.Delete {
			writes = ev.Writes
		}
		if kv == nil || kv.CreateRevision != ev.CreateRevision || kv.Version != writes {
			return fmt.Errorf("%w: what is stored at revision %d is not what revision %d has changed", errWentBack, ev.Revision-1, ev.Revision)
		}
		v, err := b.layout.versionOf(ev.Key, kv)
		var damaged *storage.DamagedError
		if errors.As(err, &damaged) {
			return fmt.Errorf("%w: %w", storage.ErrCompacted, err) // no waiting mends it
		}
		if err != nil {
			return err
		}
		versions[at] = &v
	}
	return nil
}
