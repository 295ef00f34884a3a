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

// Keeper grants and renews leases, and ends leases that are no longer renewed together with their attached resources. Any number of keepers in
// any number of processes may serve a tenancy; leases end as long as one of them runs. A Keeper is safe for concurrent use.
type Keeper struct {
	*leaseStore
	states  *leaseStates
	expirer *expirer
	stop    context.CancelFunc
	running sync.WaitGroup
	slots   chan struct{} // one for each concurrent renewal
}

// NewKeeper returns a keeper of the leases of a tenancy and starts ending expired leases. Close the keeper before the backend.
func NewKeeper(b storage.Backend, tenancy *resourcepb.Tenancy) (*Keeper, error) {
	tx, ok := storage.As[storage.Transactor](b)
	if !ok {
		return nil, fmt.Errorf("%w: leases: the backend is not a storage.Transactor", storage.ErrInvalid)
	}
	if p, n := tenancy.GetPartition(), tenancy.GetNamespace(); tenancy == nil || p == storage.Wildcard || n == storage.Wildcard {
		return nil, fmt.Errorf("%w: leases: a keeper needs one tenancy without wildcards, got %v", storage.ErrInvalid, tenancy)
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

// Close stops the keeper. Leases continue to exist, and end when another keeper runs. That keeper also completes interrupted work.
func (k *Keeper) Close() {
	k.stop()
	k.running.Wait()
}

// Grant creates a lease. It fails with [storage.ErrCASFailure] if a lease of that name exists, or if parts of an ended or deleted one remain. The
// time to live starts when a keeper observes the lease, so the lease may live slightly longer, but never shorter.
func (k *Keeper) Grant(ctx context.Context, name string, ttl time.Duration) (*Lease, error) {
	if ttl <= 0 {
		return nil, fmt.Errorf("%w: lease %q: the time to live is %v, it must be positive", storage.ErrInvalid, name, ttl)
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

// Lease returns a lease. It fails with [storage.ErrNotFound] if the lease does not exist or has begun to end.
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

// maxConcurrentRenewals bounds the concurrent renewals of a keeper. The leases of waiting renewals do not end.
const maxConcurrentRenewals = 32

// Renew restarts the time to live of a lease and returns it. It fails with [storage.ErrNotFound] if the lease does not exist or has begun to
// end. A call that starts in time is not too late, however slow the store is: this keeper does not end the lease during the call.
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
		// The lease was renewed concurrently or has begun to end; the next read distinguishes the two.
	}
}

// Extend prevents this keeper from ending a lease until release is called, as Renew does during its call. Use it for work that precedes a
// renewal. It does not affect other keepers.
func (k *Keeper) Extend(name string) (release func()) { return k.states.extend(name) }

// Remaining returns the time until a lease ends without a renewal, as observed by this keeper. The result is between zero and the time to live.
func (k *Keeper) Remaining(ctx context.Context, name string) (time.Duration, error) {
	l, err := k.Lease(ctx, name)
	if err != nil {
		return 0, err
	}
	return k.states.remaining(name, l.TTL), nil
}

// AttachedIDs returns the ids of the resources attached to a lease.
func (k *Keeper) AttachedIDs(ctx context.Context, l *Lease) ([]*resourcepb.ID, error) {
	return k.backend.OwnerReferences(ctx, l.res.GetId())
}

// Names returns the names of the leases that have not begun to end. It omits leases whose records cannot be read.
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

// Revoke ends a lease immediately, even if its record cannot be read, and deletes its attached resources. It fails with [storage.ErrNotFound] if
// the lease does not exist, and with [storage.ErrClosed] if the keeper was closed meanwhile. After any other error the lease may have begun to
// end; keepers then complete that.
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
