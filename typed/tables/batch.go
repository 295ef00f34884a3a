package tables

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
)

// Batch makes many changes that need not be atomic together in few transactions. [Store.Batch] passes it to a function.
type Batch struct {
	store          *Store
	ctx            context.Context
	tx             *Tx               // of the uncommitted updates; nil for none
	pendingUpdates []func(*Tx) error // the functions of these updates
	commitCount    int
	err            error
	inUpdate       bool // a function of Update is running
}

// BatchError is returned, as *BatchError, by a Batch that was not committed completely.
type BatchError struct {
	// CommittedUpdates is the number of calls of [Batch.Update], from the first one, that were committed. Failed calls do not count.
	CommittedUpdates int
	// Err is the reason. If it is [storage.ErrInconsistent], some of the following calls may have been committed too.
	Err error
}

// Error implements the error interface.
func (e *BatchError) Error() string {
	return fmt.Sprintf("the batch failed after %d committed updates: %v", e.CommittedUpdates, e.Err)
}

// Unwrap returns Err.
func (e *BatchError) Unwrap() error { return e.Err }

// Batch calls fn, which makes changes with [Batch.Update]. The changes of one such call are atomic. The changes of several calls are
// committed together or one after the other, in the order of the calls. A transaction is committed before it would exceed the backend's
// limits ([storage.Transactor].MaxOps) or 1 MiB; the last one is committed when fn returns. If another writer was faster, the calls of
// a transaction are committed in two halves, and so on down to single calls. So an object that others write all the time does not keep
// the other objects of its transaction from being committed.
//
// If fn returns an error, uncommitted changes are discarded. Batch then returns a [*BatchError] with the number of committed calls of Update, as it
// does if a transaction fails.
func (s *Store) Batch(ctx context.Context, fn func(*Batch) error) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	b := &Batch{store: s, ctx: ctx}
	defer b.end()
	err := fn(b)
	if err == nil {
		err = b.commit()
	}
	if err == nil {
		return nil
	}
	if b.err != nil && errors.Is(err, b.err) {
		return err
	}
	return &BatchError{CommittedUpdates: b.commitCount, Err: err}
}

// end makes the Batch refuse further calls.
func (b *Batch) end() {
	if b.err == nil {
		b.err = fmt.Errorf("%w: the batch has ended: it is valid only inside the function", storage.ErrInvalid)
	}
	if b.tx != nil {
		b.tx.end()
	}
}

// Update calls fn with a transaction that includes the changes of earlier calls, and commits fn's changes with theirs or later. Like the function
// of [Store.Update], fn may be called several times, also after this call of Update has returned but before its Batch returns. So it must not use
// variables that change meanwhile.
//
// If fn returns an error, Update discards fn's changes and returns the error, and the batch continues. Update does not verify the reads behind that
// error. An error from a later call of fn ends the batch.
//
// Errors: [storage.ErrTooLarge] if the changes of fn alone exceed a transaction; they are discarded. [storage.ErrInvalid] if fn has called Update
// of its own Batch, or if the Batch has ended. A [*BatchError] is final.
func (b *Batch) Update(fn func(*Tx) error) error {
	if b.inUpdate {
		return fmt.Errorf("%w: Update of a batch was called by a function of its own Update", storage.ErrInvalid)
	}
	for {
		if b.err != nil {
			return b.err
		}
		if b.tx == nil {
			b.tx = newTx(b.store, nil)
		}
		before := b.tx.savepoint()
		err := b.run(fn)
		full := false
		if err == nil {
			err = b.tx.checkSize()
			full = errors.Is(err, storage.ErrTooLarge) && len(b.pendingUpdates) > 0
		}
		if err == nil {
			b.pendingUpdates = append(b.pendingUpdates, fn)
			return nil
		}
		b.tx.restore(before)
		if !full {
			return err
		}
		if err := b.commit(); err != nil {
			return err
		}
	}
}

// run calls the function of an Update. It discards the function's changes if the function panics.
func (b *Batch) run(fn func(*Tx) error) error {
	before, returned := b.tx.savepoint(), false
	b.inUpdate = true
	defer func() {
		if b.inUpdate = false; !returned {
			b.tx.restore(before)
		}
	}()
	err := fn(b.tx)
	returned = true
	return err
}

// commit commits the pending calls of Update.
func (b *Batch) commit() error {
	tx, calls := b.tx, b.pendingUpdates
	if b.tx, b.pendingUpdates = nil, nil; b.err != nil || len(calls) == 0 {
		return b.err
	}
	tx.end()
	if err := b.commitCalls(tx, calls); err != nil {
		b.err = &BatchError{CommittedUpdates: b.commitCount, Err: err}
		return b.err
	}
	return nil
}

// commitCalls commits calls of Update, in one transaction if possible. The calls have already run in tx, unless it is nil.
func (b *Batch) commitCalls(tx *Tx, calls []func(*Tx) error) error {
	err := b.store.update(b.ctx, tx, func(tx *Tx) error {
		for _, fn := range calls {
			if err := fn(tx); err != nil {
				return err
			}
		}
		return nil
	}, len(calls) == 1)
	switch {
	case err == nil:
		b.commitCount += len(calls)
	case len(calls) > 1 && (errors.Is(err, errConflict) || errors.Is(err, storage.ErrTooLarge)):
		// Another writer was faster. Or the calls fitted together at first, but no longer do after changes of other writers.
		half := len(calls) / 2
		if err = b.commitCalls(nil, calls[:half]); err == nil {
			err = b.commitCalls(nil, calls[half:])
		}
	}
	return err
}
