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

// Elector is a candidate for a lock. Its methods may be called from any number of goroutines; each Campaign is a candidate of its own.
type Elector struct {
	*lockStore
	opts Options
}

// Options are the options of an Elector.
type Options struct {
	// TTL is how long a holder is waited for that gives no sign of life. It is renewed every third of it. 0 is 15 seconds; less than a
	// second is taken for a second.
	TTL time.Duration
	// Holder names the candidate in the lock's record, for people: a text in UTF-8. A unique text is added. "" is fine.
	Holder string
}

const (
	defaultTTL = 15 * time.Second
	minTTL     = time.Second
)

// NewElector returns a candidate for the lock of a name in a tenancy. The backend stays the caller's. Locks of one name have to have
// options of one TTL to be of much use, but nothing breaks where they have not: the holder's counts.
func NewElector(b storage.Backend, tenancy *resourcepb.Tenancy, name string, o *Options) (*Elector, error) {
	tx, ok := storage.As[storage.Transactor](b)
	if !ok {
		return nil, fmt.Errorf("%w: lock %q: the backend is no Transactor", storage.ErrInvalid, name)
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

// Try takes the lock if it is free, and returns [ErrHeld] if somebody holds it, dead or alive: only who waits can tell that. If the store
// does not answer in time, the lock may be taken until its time to live has passed, by nobody.
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

// Holder returns who holds the lock, as Options.Holder and a unique text, "" for nobody, and the epoch of the newest tenure, 0 if there was
// none. That a holder is alive it does not say: one that died holds the lock until another candidate takes over.
func (e *Elector) Holder(ctx context.Context) (holder string, epoch int64, err error) {
	r, err := e.read(ctx)
	if err != nil {
		return "", 0, err
	}
	return r.holder, r.epoch, nil
}

// newHolderName returns a name that no other newHolderName has.
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

// isConflict reports whether a call failed because of what somebody else did.
func isConflict(err error) bool {
	return errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid)
}

// observation is what a candidate has seen of the holder's signs of life.
type observation struct {
	heartbeatVersion string    // the version of the newest heartbeat
	since            time.Time // when the candidate saw that one first
	ttl              time.Duration
}

// observeRecord takes in what is stored.
func (o *observation) observeRecord(r *record) {
	o.ttl = r.ttl
	o.observeVersion(r.heartbeat.GetVersion())
}

// observeVersion takes in the version of a heartbeat.
func (o *observation) observeVersion(version string) {
	if o.since.IsZero() || version != o.heartbeatVersion {
		o.heartbeatVersion, o.since = version, time.Now()
	}
}

// try takes the lock if it is free, or if the holder gave no sign of life for its time. Without a tenure and an error, another one holds it.
func (e *Elector) try(ctx context.Context, holder string, obs *observation) (*Tenure, error) {
	began := time.Now()
	r, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	obs.observeRecord(r)
	lock, epoch := r.lock, r.epoch
	ops := []storage.Op{{Check: r.lock.GetId(), Version: r.lock.GetVersion()}}
	if r.holder != holder { // else it was won by a try whose answer was lost, and lacks a sign of life that is known to be new
		if r.holder != "" && time.Since(obs.since) < r.ttl {
			return nil, nil
		}
		epoch++
		lock = e.newLock(r.lock, holder, epoch)
		ops[0] = storage.Op{Write: lock}
	}
	// That the last heartbeat is still the one that was seen is part of the transaction.
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

// wait waits for some time, or for the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
