package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Elector is a candidate for a lock. It is safe for concurrent use; each Campaign is a candidate of its own.
type Elector struct {
	*lockStore
	opts Options
}

// Options configures an Elector.
type Options struct {
	// TTL is the time to live: other candidates take over after this time without a heartbeat. The holder sends a heartbeat every third of it.
	// The default is 15 seconds; a time below one second is raised to one second.
	TTL time.Duration
	// Holder is a readable name of the candidate for the lock's record, in UTF-8. A unique suffix is added. It may be empty.
	Holder string
}

const (
	defaultTTL = 15 * time.Second
	minTTL     = time.Second
)

// NewElector returns a candidate for the lock of a name in a tenancy. It does not close the backend. All candidates of a lock should use the same
// TTL. Different ones are safe: the holder's TTL applies.
func NewElector(b storage.Backend, tenancy *resourcepb.Tenancy, name string, o *Options) (*Elector, error) {
	tx, ok := storage.As[storage.Transactor](b)
	if !ok {
		return nil, fmt.Errorf("%w: lock %q: the backend is not a storage.Transactor", storage.ErrInvalid, name)
	}
	e := &Elector{lockStore: &lockStore{backend: b, tx: tx, tenancy: proto.CloneOf(tenancy), name: name}}
	if o != nil {
		e.opts = *o
	}
	if e.opts.TTL == 0 {
		e.opts.TTL = defaultTTL
	}
	e.ttl = max(e.opts.TTL, minTTL)
	if !utf8.ValidString(e.opts.Holder) {
		return nil, fmt.Errorf("%w: lock %q: the holder's name %q is not UTF-8", storage.ErrInvalid, name, e.opts.Holder)
	}
	return e, nil
}

// Try acquires the lock if it is free. It returns [ErrHeld] if the lock is held, even by a dead holder: only a waiting candidate can detect that.
// If the store does not answer in time, the lock may be taken, without a holder, until its time to live has passed.
func (e *Elector) Try(ctx context.Context) (*Tenure, error) {
	tenure, err := e.try(ctx, e.newHolderName(), &observation{})
	switch {
	case tenure != nil:
		return tenure, nil
	case err == nil, isConflict(err):
		return nil, fmt.Errorf("lock %q: %w", e.name, ErrHeld)
	}
	return nil, fmt.Errorf("lock %q: %w", e.name, err)
}

// Holder returns the holder's name (Options.Holder and a unique suffix), "" for a free lock, and the epoch of the latest tenure, 0 for none. The
// holder may be dead: a dead holder remains in the record until another candidate takes over.
func (e *Elector) Holder(ctx context.Context) (holder string, epoch int64, err error) {
	r, err := e.read(ctx)
	if err != nil {
		return "", 0, err
	}
	return r.holder, r.epoch, nil
}

// State is the stored state of a lock. A later state with a live holder differs: the holder sends a heartbeat every third of the time to live.
type State struct {
	Holder    string // as returned by Holder
	Epoch     int64  // of the latest tenure, 0 for none
	Heartbeat string // version of the latest heartbeat, "" for none
}

// State returns the stored state of the lock.
func (e *Elector) State(ctx context.Context) (State, error) {
	r, err := e.read(ctx)
	if err != nil {
		return State{}, err
	}
	return State{r.holder, r.epoch, r.heartbeat.GetVersion()}, nil
}

// newHolderName returns a name that is unique among all candidates.
func (e *Elector) newHolderName() string {
	unique := ulid.Make().String()
	if e.opts.Holder == "" {
		return unique
	}
	return e.opts.Holder + " " + unique
}

// isTransient reports whether a call that failed with err may succeed later.
func isTransient(err error) bool {
	return errors.Is(err, storage.ErrInconsistent) || isConflict(err)
}

// isConflict reports whether a call failed because of another writer.
func isConflict(err error) bool {
	return errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid)
}

// observation is the newest heartbeat that a candidate has observed.
type observation struct {
	heartbeatVersion string    // of the heartbeat
	since            time.Time // when the candidate first observed it
	ttl              time.Duration
}

// observeRecord records the stored state of the lock.
func (o *observation) observeRecord(r *record) {
	o.ttl = r.ttl
	o.observeVersion(r.heartbeat.GetVersion())
}

// observeVersion records the version of a heartbeat.
func (o *observation) observeVersion(version string) {
	if o.since.IsZero() || version != o.heartbeatVersion {
		o.heartbeatVersion, o.since = version, time.Now()
	}
}

// try acquires the lock if it is free or if its holder has expired. It returns nil, nil if another candidate holds the lock.
func (e *Elector) try(ctx context.Context, holder string, obs *observation) (*Tenure, error) {
	began := time.Now()
	r, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	obs.observeRecord(r)
	lock, epoch := r.lock, r.epoch
	ops := []storage.Op{{Check: r.lock.GetId(), Version: r.lock.GetVersion()}}
	if r.holder != holder { // otherwise an earlier try acquired the lock and its answer was lost: only a new heartbeat is needed
		if r.holder != "" && time.Since(obs.since) < r.ttl {
			return nil, nil
		}
		epoch++
		lock = e.newLock(r.lock, holder, epoch)
		ops[0] = storage.Op{Write: lock}
	}
	// The write of the heartbeat also proves that the observed one is still stored.
	stored, err := e.tx.Commit(ctx, append(ops, storage.Op{Write: e.newHeartbeat(r.heartbeat, lock.GetId(), holder, epoch)}))
	if err != nil {
		return nil, err
	}
	if stored[0] != nil {
		r = &record{lock: stored[0], holder: holder, epoch: epoch, ttl: e.ttl}
	}
	r.heartbeat = stored[1]
	return e.startTenure(r, began), nil
}

// wait blocks for a duration or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
