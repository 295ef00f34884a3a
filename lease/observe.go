package lease

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// observer watches the records of leases and updates leaseStates.
type observer struct {
	*leaseStore
	*leaseStates
}

// observe watches leases and their renewals until ctx ends or the backend is closed.
func (o *observer) observe(ctx context.Context) {
	for ctx.Err() == nil {
		w, err := o.backend.WatchList(ctx, storage.UnversionedType{Group: leaseType.Group, Kind: storage.Wildcard}, o.tenancy, "")
		if err == nil {
			err = o.follow(ctx, w)
			w.Close()
		}
		if errors.Is(err, storage.ErrClosed) {
			return
		}
		wait(ctx, retryPause)
		if damaged := (*storage.DamagedError)(nil); errors.As(err, &damaged) {
			_ = o.repair(ctx, damaged, o.uid) // the next watch fails if there is more to repair
		}
	}
}

// follow applies the events of a watch until the watch ends. It forgets leases that the snapshot of the watch lacks.
func (o *observer) follow(ctx context.Context, w storage.Watch) error {
	type part struct{ kind, name string }
	listed := map[part]bool{}
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			return err
		}
		o.mu.Lock()
		switch {
		case ev.GetEndOfSnapshot() != nil:
			for name := range o.leases {
				for _, typ := range []*resourcepb.Type{leaseType, renewalType} {
					if !listed[part{typ.GetKind(), name}] {
						o.observeDeletion(typ.GetKind(), name)
					}
				}
			}
			listed = nil
		case ev.GetDelete() != nil:
			id := ev.GetDelete().GetResource().GetId()
			o.observeDeletion(id.GetType().GetKind(), id.GetName())
		case ev.GetUpsert() != nil:
			res := ev.GetUpsert().GetResource()
			if listed != nil {
				listed[part{res.GetId().GetType().GetKind(), res.GetId().GetName()}] = true
			}
			o.observeWrite(res)
		}
		o.announce()
		o.mu.Unlock()
	}
}
