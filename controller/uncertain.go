package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/clientstore"
	"github.com/ashlar-dev/storage/resourcepb"
)

// uncertainWrites holds the keys whose cached state may lack a write of a reconcile: the outcome of the write is unknown, or its answer does not
// have the stored state. They are kept by the resource whose reconcile wrote, and resolved before its next reconcile.
type uncertainWrites struct {
	informers informers
	mu        sync.Mutex
	byCause   map[key.Key]map[key.Key]deletedRow
}

// deletedRow is the cached state of a key before it was deleted by its uid; the zero value for other writes.
type deletedRow struct{ uid string }

// add records that a reconcile of cause has left the state of a key uncertain.
func (w *uncertainWrites) add(cause, k key.Key, deleted deletedRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byCause == nil {
		w.byCause = map[key.Key]map[key.Key]deletedRow{}
	}
	if w.byCause[cause] == nil {
		w.byCause[cause] = map[key.Key]deletedRow{}
	}
	if _, exists := w.byCause[cause][k]; exists {
		deleted = deletedRow{} // only a read decides about several writes
	}
	w.byCause[cause][k] = deleted
}

// take removes and returns the keys of a cause.
func (w *uncertainWrites) take(cause key.Key) map[key.Key]deletedRow {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.byCause[cause]
	delete(w.byCause, cause)
	return all
}

// forget removes a key of a cause.
func (w *uncertainWrites) forget(cause, k key.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byCause[cause], k)
}

// unreadableError is the error of the read of an uncertain key.
type unreadableError struct {
	key key.Key
	err error
}

func (e *unreadableError) Error() string {
	return fmt.Sprintf("cannot read %v, which an earlier call has written: %v", e.key, e.err)
}

func (e *unreadableError) Unwrap() error { return e.err }

// isLasting reports whether the same read will fail again. A store that has moved is no such failure.
func (e *unreadableError) isLasting() bool {
	switch status.Code(e.err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.DataLoss:
		return true
	}
	return clientstore.Reason(e.err) == "CONVERSION"
}

// resolve makes the cache include all writes of earlier reconciles of a resource. After an error, an *unreadableError, the remaining keys stay.
func (w *uncertainWrites) resolve(ctx context.Context, cause key.Key) error {
	all := w.take(cause)
	for k, deleted := range all {
		if err := w.resolveKey(ctx, k, deleted); err != nil {
			for k, deleted := range all {
				w.add(cause, k, deleted)
			}
			return &unreadableError{k, err}
		}
		delete(all, k)
	}
	return nil
}

// resolveKey makes the cache include all writes of a key that were acknowledged before the call.
func (w *uncertainWrites) resolveKey(ctx context.Context, k key.Key, deleted deletedRow) error {
	i := w.informers.find(k)
	if i == nil {
		return nil
	}
	k = i.completeKey(k)
	if current := i.copy.Get(k); deleted.uid != "" && (current == nil || current.Value.res.GetId().GetUid() != deleted.uid) {
		return nil // the watch has delivered the deletion
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		writing := i.copy.Begin([]key.Key{k})
		before := i.copy.Get(k)
		res, err := i.store.Read(ctx, storage.StrongConsistency, k.ID("", ""))
		if full := key.Of(res.GetId()); err == nil && full != k { // the service has completed the tenancy
			writing.End(nil, nil)
			k = full
			continue
		}
		var written, gone []*resourcepb.Resource
		switch {
		case errors.Is(err, storage.ErrNotFound) && before != nil:
			gone = append(gone, before.Value.res)
		case err == nil && (before == nil || before.Version != res.GetVersion()):
			written = append(written, res)
		case err != nil && !errors.Is(err, storage.ErrNotFound):
			writing.End(nil, nil)
			return err
		}
		// The copy cannot include the answer if the watch has delivered other changes meanwhile: read again.
		if unsure := writing.End(written, gone); len(unsure) == 0 {
			return nil
		}
		if sleep(ctx, pause); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// provesNoWrite reports whether the error of a write proves that nothing was written.
func provesNoWrite(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated:
		return true
	}
	switch clientstore.Reason(err) {
	case "CAS_FAILURE", "WRONG_UID", "NOT_FOUND", "INVALID", "TOO_LARGE", reasonLeaseLost:
		return true
	}
	return false
}

// reasonLeaseLost is the reason of the service's error for a write whose fence is outdated.
const reasonLeaseLost = "LEASE_LOST"
