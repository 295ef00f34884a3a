package replica

import (
	"context"
	"errors"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// retryVerifyLocal has own writes settled, of which a list did not tell, however long the database is out of reach.
func (r *Replica[V]) retryVerifyLocal() {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		if err := r.verifyLocal(r.ctx); err == nil || errors.Is(err, storage.ErrClosed) {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-r.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// verifyLocal has own writes settled of which a list did not tell, where watches prove nothing: it reads their keys.
func (r *Replica[V]) verifyLocal(ctx context.Context) error {
	r.mu.Lock()
	all := make([]key.Key, 0, len(r.localWrites))
	for k := range r.localWrites {
		all = append(all, k)
	}
	r.mu.Unlock()
	for _, k := range all {
		for settled := false; !settled; {
			var err error
			if settled, err = r.verifyKey(ctx, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyKey reads a key, and holds what is stored against the own write that lies over it. It returns false if the watch has brought
// something for the key meanwhile, which may be older than what was read, or newer.
func (r *Replica[V]) verifyKey(ctx context.Context, k key.Key) (bool, error) {
	r.mu.Lock()
	o := r.localWrites[k]
	var passed int
	if o != nil {
		passed = o.arrivalCount
	}
	r.mu.Unlock()
	if o == nil {
		return true, nil
	}
	res, err := r.backend.Read(ctx, storage.StrongConsistency, k.ID("", ""))
	if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) {
		res, err = mismatch.Stored, nil
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	base := ""
	if o.base != nil {
		base = o.base.Version
	}
	switch stored := res.GetVersion(); {
	case r.localWrites[k] != o:
	case o.arrivalCount != passed:
		return false, nil
	case o.row != nil && o.version == stored: // the watch is going to bring it
	case base == stored:
		if stored == "" { // the base may be nothing yet, and not nothing any more
			r.rememberDeletion(k, o)
		}
		r.removeLocal(k, o) // the write is older
	default:
		o.next = &coveredWrite{version: stored, isDeletion: stored == ""} // the write is older, and is newer or older than what the watch has brought
	}
	return true, nil
}
