package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Keeper grants leases, renews them and ends those that nobody renews, with all that is attached to them. Any number of keepers, in any
// number of processes, may keep the leases of one tenancy; as long as one of them runs, leases end. All methods may be called from any
// number of goroutines.
type Keeper struct {
	*leaseStore
	states  *leaseStates
	expirer *expirer
	stop    context.CancelFunc
	running sync.WaitGroup
	slots   chan struct{} // one for each concurrent renewal
}

// NewKeeper returns a keeper of the leases of a tenancy, and begins to end those that nobody renews. The backend stays the caller's, and is
// closed after the keeper.
func NewKeeper(b storage.Backend, tenancy *resourcepb.Tenancy) (*Keeper, error) {
	tx, ok := storage.As[storage.Transactor](b)
	if !ok {
		return nil, fmt.Errorf("%w: leases: the backend is no Transactor", storage.ErrInvalid)
	}
	if p, n := tenancy.GetPartition(), tenancy.GetNamespace(); tenancy == nil || p == storage.Wildcard || n == storage.Wildcard {
		return nil, fmt.Errorf("%w: leases: a keeper needs one tenancy, not %v", storage.ErrInvalid, tenancy)
	}
	ctx, cancel := context.WithCancel(context.Background())
	store := &leaseStore{backend: b, tx: tx, tenancy: proto.CloneOf(tenancy)}
	states := newLeaseStates()
	k := &Keeper{
		leaseStore: store, states: states, expirer: &expirer{store, states, make(chan struct{})},
		stop: cancel, slots: make(chan struct{}, maxConcurrentRenewals),
	}
	k.running.Go(func() {
		defer close(k.expirer.watchEndCh)
		(&observer{store, states}).observe(ctx)
	})
	k.running.Go(func() { k.expirer.expire(ctx) })
	return k, nil
}

// Close ends the keeper. The leases live on, and end where another keeper runs, or when one does again. What was under way is given up
// and done by that one.
func (k *Keeper) Close() {
	k.stop()
	k.running.Wait()
}

// Grant makes a lease. It is [storage.ErrCASFailure] if there is one of that name, also one that has ended or was deleted and of which
// something is left.
// The time to live counts from the moment at which a keeper sees the lease, so it may live a little longer, and never shorter.
func (k *Keeper) Grant(ctx context.Context, name string, ttl time.Duration) (*Lease, error) {
	if ttl <= 0 {
		return nil, fmt.Errorf("%w: lease %q: a time to live of %v", storage.ErrInvalid, name, ttl)
	}
	l := &Lease{TTL: ttl, res: &resourcepb.Resource{Id: k.id(leaseType, name), Generation: ulid.Make().String()}}
	l.res.Id.Uid = ulid.Make().String()
	stored, err := k.tx.Commit(ctx, []storage.Op{{Write: l.record(false)}, {Write: k.renewal(nil, l)}})
	if errors.Is(err, storage.ErrWrongUid) {
		err = storage.ErrCASFailure
	}
	if err != nil {
		return nil, fmt.Errorf("grant lease %q: %w", name, err)
	}
	l.res = stored[0]
	return l, nil
}

// Lease returns a lease. It is [storage.ErrNotFound] if there is none, or if its end has begun.
func (k *Keeper) Lease(ctx context.Context, name string) (*Lease, error) {
	res, err := k.readRecord(ctx, leaseType, name)
	if err != nil {
		return nil, fmt.Errorf("lease %q: %w", name, err)
	}
	l, err := leaseOf(res)
	if err == nil && l.hasEnded {
		return nil, fmt.Errorf("lease %q: %w: its end has begun", name, storage.ErrNotFound)
	}
	return l, err
}

// maxConcurrentRenewals is how many renewals a keeper asks the store for at the same time. Others wait, and their leases live meanwhile.
const maxConcurrentRenewals = 32

// Renew has a lease live for another time to live, which it returns. It is [storage.ErrNotFound] if there is none, or if its end has begun.
// A call that comes before the end is not too late, however long the store takes for it: this keeper does not end the lease meanwhile.
func (k *Keeper) Renew(ctx context.Context, name string) (time.Duration, error) {
	defer k.Extend(name)()
	select {
	case k.slots <- struct{}{}:
		defer func() { <-k.slots }()
	case <-ctx.Done():
		return 0, fmt.Errorf("renew lease %q: %w", name, ctx.Err())
	}
	for {
		l, err := k.Lease(ctx, name)
		if err != nil {
			return 0, err
		}
		last, err := k.readRecord(ctx, renewalType, name)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return 0, fmt.Errorf("renew lease %q: %w", name, err)
		}
		_, err = k.tx.Commit(ctx, []storage.Op{l.Alive(), {Write: k.renewal(last, l)}})
		switch {
		case err == nil:
			return l.TTL, nil
		case !errors.Is(err, storage.ErrCASFailure) && !errors.Is(err, storage.ErrWrongUid):
			return 0, fmt.Errorf("renew lease %q: %w", name, err)
		}
		// Another one has renewed it, or its end has begun: the next reading tells.
	}
}

// Extend has this keeper not end a lease by itself until what it returns is called, as Renew does while it runs: for who has something to do
// before the lease is renewed. Other keepers know nothing of it.
func (k *Keeper) Extend(name string) (release func()) { return k.states.extend(name) }

// Remaining returns how long a lease lives if nobody renews it, as far as this keeper has seen: not more than its time to live, and not
// less than nothing.
func (k *Keeper) Remaining(ctx context.Context, name string) (time.Duration, error) {
	l, err := k.Lease(ctx, name)
	if err != nil {
		return 0, err
	}
	return k.states.remaining(name, l.TTL), nil
}

// AttachedIDs returns the ids of what is attached to a lease.
func (k *Keeper) AttachedIDs(ctx context.Context, l *Lease) ([]*resourcepb.ID, error) {
	return k.backend.OwnerReferences(ctx, l.res.GetId())
}

// Names returns the names of the leases whose end has not begun, without those whose records cannot be read.
func (k *Keeper) Names(ctx context.Context) ([]string, error) {
	list, err := k.backend.List(ctx, storage.StrongConsistency, storage.UnversionedTypeFrom(leaseType), k.tenancy, "")
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	var names []string
	for _, res := range list {
		if l, err := leaseOf(res); err == nil && !l.hasEnded {
			names = append(names, res.GetId().GetName())
		}
	}
	return names, nil
}

// Revoke ends a lease at once, also one whose record cannot be read, and deletes what is attached to it. It is [storage.ErrNotFound] if
// there is none. If it fails otherwise, the end may have begun; then keepers go on with it. It is [storage.ErrClosed] if the keeper was
// closed meanwhile.
func (k *Keeper) Revoke(ctx context.Context, name string) error {
	for {
		res, err := k.readRecord(ctx, leaseType, name)
		if err == nil {
			l, malformed := leaseOf(res)
			if malformed != nil {
				l = &Lease{res: res}
			}
			err = k.expirer.end(ctx, l)
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, storage.ErrCASFailure) && !errors.Is(err, storage.ErrWrongUid):
			return fmt.Errorf("revoke lease %q: %w", name, err)
		}
	}
}
