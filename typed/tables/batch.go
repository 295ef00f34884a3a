package tables

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
)

// Batch makes many changes that need not be atomic together, in few transactions: for the function that [Store.Batch] calls with it.
type Batch struct {
	store          *Store
	ctx            context.Context
	tx             *Tx               // of the Updates that are not committed yet; nil for none
	pendingUpdates []func(*Tx) error // these
	commitCount    int
	err            error
	inUpdate       bool // a function of Update
}

// BatchError is returned, as *BatchError, by a Batch that was not committed as a whole.
type BatchError struct {
	// CommittedUpdates is how many calls of [Batch.Update], from the first one on, are committed. Calls whose function failed do not count.
	CommittedUpdates int
	// Err is why the Batch ended. If it is [storage.ErrInconsistent], some of the calls that follow may be committed too.
	Err error
}

// Error implements the error interface.
func (e *BatchError) Error() string {
	return fmt.Sprintf("the batch ended after %d updates were committed: %v", e.CommittedUpdates, e.Err)
}

// Unwrap returns Err.
func (e *BatchError) Unwrap() error { return e.Err }

// Batch calls fn, which makes changes by [Batch.Update]. The changes of one such call are atomic; those of several may be committed
// together or one after the other, in the order of the calls. A transaction ends where the next changes would take it beyond what the
// backend takes ([storage.Transactor].MaxOps) or 1 MiB; the last one ends with fn.
//
// If fn returns an error, what is not committed yet is dropped. Batch then returns a [*BatchError], as when a transaction fails, which
// says how many calls of Update are committed.
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

// end has the Batch take nothing any more.
func (b *Batch) end() {
	if b.err == nil {
		b.err = fmt.Errorf("%w: the batch is over: it is good until the function that got it returns", storage.ErrInvalid)
	}
	if b.tx != nil {
		b.tx.end()
	}
}

// Update calls fn with a transaction that shows what earlier calls have done, and has its changes committed with theirs or later. fn may
// be called several times, as by [Store.Update], and also after Update has returned, as long as its Batch has not: it must not use what
// changes meanwhile, such as the variables of a loop that was written for an old version of Go.
//
// If fn returns an error, its changes are dropped and Update returns the error; the batch goes on. What fn has read for its error is not
// checked. An error that fn returns when it is called again ends the batch. [storage.ErrTooLarge]: the changes of fn alone do not fit a
// transaction; they are dropped, too. [storage.ErrInvalid]: fn has called Update of its own Batch, or the Batch is over. A [*BatchError]
// is final.
func (b *Batch) Update(fn func(*Tx) error) error {
	if b.inUpdate {
		return fmt.Errorf("%w: Update of a batch within a function of its Update", storage.ErrInvalid)
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

// run calls the function of an Update. If it panics, what it has done is dropped.
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

// commit commits the calls of Update that wait for it.
func (b *Batch) commit() error {
	tx, calls := b.tx, b.pendingUpdates
	if b.tx, b.pendingUpdates = nil, nil; b.err != nil || len(calls) == 0 {
		return b.err
	}
	tx.end()
	err := b.store.update(b.ctx, tx, func(tx *Tx) error {
		for _, fn := range calls {
			if err := fn(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, storage.ErrTooLarge) && len(calls) > 1 {
		// They fitted when they were called first, and do not in view of what others have done.
		for _, fn := range calls {
			if err = b.store.update(b.ctx, nil, fn); err != nil {
				break
			}
			b.commitCount++
		}
		calls = nil
	}
	if err != nil {
		b.err = &BatchError{CommittedUpdates: b.commitCount, Err: err}
		return b.err
	}
	b.commitCount += len(calls)
	return nil
}
