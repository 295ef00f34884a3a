package expiry

import (
	"context"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

var (
	allTypes     = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	allTenancies = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
)

// damageSkipper is a watch that can skip damaged resources.
type damageSkipper interface {
	SkipDamage(of func(storage.UnversionedType) bool)
}

// follow queues the versions with a time to live that one watch returns, until the watch ends.
func follow(ctx context.Context, b storage.Backend, q *queue) error {
	w, err := b.WatchList(ctx, allTypes, allTenancies, "")
	if err != nil {
		return err
	}
	defer w.Close()
	if skipper, ok := w.(damageSkipper); ok { // a damaged resource must not prevent the deletion of others
		skipper.SkipDamage(func(storage.UnversionedType) bool { return true })
	}
	listed := map[key.Key]bool{} // the snapshot's resources with a time to live; nil after the snapshot
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			return err
		}
		switch res := ev.GetUpsert().GetResource(); {
		case ev.GetEndOfSnapshot() != nil:
			q.keepOnly(listed) // all other resources were deleted or written without a time to live while there was no watch
			listed = nil
		case ev.GetDelete() != nil:
			q.remove(key.Of(ev.GetDelete().GetResource().GetId()))
		case res != nil:
			ttl := timeToLive(res)
			if ttl > 0 && listed != nil {
				listed[key.Of(res.GetId())] = true
			}
			q.observe(res, ttl)
		}
	}
}

// timeToLive returns the time to live of a resource, 0 for none. A value that a write would refuse today is none.
func timeToLive(res *resourcepb.Resource) time.Duration {
	ttl := res.GetTtl()
	if ttl == nil || !ttl.IsValid() {
		return 0
	}
	return max(0, ttl.AsDuration())
}
