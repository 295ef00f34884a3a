package typed

import (
	"context"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Transact calls fn with a transaction over resources of any types, and then commits all changes of fn, or none.
//
// Each resource that fn accesses is read once, strongly. The database compares all of them with the stored ones in the same step as it writes. If
// another writer was faster, nothing is written, and Transact calls fn again, until the context ends. So fn must have no effects except through the
// transaction and through variables that it sets anew in each call.
//
// If fn returns an error or changes nothing, nothing is written. If fn has read several resources, Transact then also compares them
// with the stored ones, and calls fn again if one of them has changed. It does not compare them if fn fails after it has read more
// resources than the backend allows in a transaction.
//
// Errors: [storage.ErrInvalid] if the backend is not a [storage.Transactor]; [storage.ErrTooLarge] if fn has accessed more resources than the
// backend allows in a transaction, or has changed more than 1 MiB; [storage.ErrInconsistent] if the database's answer was lost. Package tables has
// transactions that read from memory and can list.
func Transact(ctx context.Context, backend storage.Backend, fn func(*Tx) error) error {
	transactor, ok := storage.As[storage.Transactor](backend)
	if !ok {
		return fmt.Errorf("%w: the backend is not a storage.Transactor", storage.ErrInvalid)
	}
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		tx := &Tx{ctx: ctx, backend: backend}
		fnErr := fn(tx)
		tx.hasEnded = true
		err := tx.commit(transactor, fnErr)
		if _, isConflict := err.(conflictError); !isConflict {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return fmt.Errorf("transaction: %w", errors.Join(err, storage.ErrCASFailure))
		}
	}
}

// conflictError is the error of a commit that was refused because another writer was faster.
type conflictError struct{ error }

// Tx is a running transaction. [Transact] passes it to a function, and it is valid only inside that function. It must not be used concurrently.
type Tx struct {
	ctx      context.Context
	backend  storage.Backend
	rows     []*txRow
	hasEnded bool
}

// txRow is a resource that a transaction has read.
type txRow struct {
	id       *resourcepb.ID
	stored   *resourcepb.Resource // nil for none
	write    *resourcepb.Resource // after the change; nil for none
	isDelete bool
	finish   func(stored *resourcepb.Resource) // called with the written resource
}

// current returns the resource as the transaction sees it, nil for none.
func (r *txRow) current() *resourcepb.Resource {
	switch {
	case r.write != nil:
		return r.write
	case r.isDelete:
		return nil
	}
	return r.stored
}

// read returns the row of an id, and reads the resource at the first access.
func (tx *Tx) read(id *resourcepb.ID) (*txRow, error) {
	if tx.hasEnded {
		return nil, fmt.Errorf("%w: the transaction has ended: it is valid only inside the function", storage.ErrInvalid)
	}
	for _, row := range tx.rows {
		if key.Of(row.id) == key.Of(id) {
			return row, nil
		}
	}
	row := &txRow{id: codec.CloneID(id)}
	row.id.Uid = ""
	res, err := tx.backend.Read(tx.ctx, storage.StrongConsistency, row.id)
	var mismatch storage.GroupVersionMismatchError
	switch {
	case err == nil:
		row.stored = res
	case errors.As(err, &mismatch):
		row.stored = mismatch.Stored
	case !errors.Is(err, storage.ErrNotFound):
		return nil, err
	}
	tx.rows = append(tx.rows, row)
	return row, nil
}

// commit commits the changes. It returns fnErr, the error of the function, if the reads behind it are valid, and a conflictError if the function
// must be called again.
func (tx *Tx) commit(transactor storage.Transactor, fnErr error) error {
	ops := make([]storage.Op, 0, len(tx.rows))
	hasChanges := false
	for _, row := range tx.rows {
		switch {
		case fnErr == nil && row.write != nil:
			row.write.Version = row.stored.GetVersion() // also of a resource that was deleted and created again, which has none until here
			ops = append(ops, storage.Op{Write: row.write})
			hasChanges = true
		case fnErr == nil && row.isDelete:
			ops = append(ops, storage.Op{Delete: row.stored.GetId(), Version: row.stored.GetVersion(), Present: true})
			hasChanges = true
		case row.stored != nil:
			ops = append(ops, storage.Op{Check: row.stored.GetId(), Version: row.stored.GetVersion()})
		default:
			ops = append(ops, storage.Op{Check: row.id})
		}
	}
	if !hasChanges && len(ops) < 2 { // a single read is valid by itself
		return fnErr
	}
	results, err := transactor.Commit(tx.ctx, ops)
	var op *storage.OpError
	switch {
	case errors.As(err, &op) && isConflict(err):
		return conflictError{err}
	case err != nil && fnErr != nil && !errors.Is(err, storage.ErrTooLarge): // errors.Is must not find an unverified error
		return fmt.Errorf("transaction: %w: cannot verify the error of its function: %s", err, fnErr.Error())
	case fnErr != nil:
		return fnErr
	case err != nil:
		return err
	}
	for i, row := range tx.rows {
		if row.write != nil {
			row.finish(results[i])
		}
	}
	return nil
}

// TxClient reads and changes the resources of one type in a transaction. [Client.In] returns it.
type TxClient[T any] struct {
	client *Client[T]
	tx     *Tx
}

// In returns a client for the resources of the client's type in a transaction over the client's backend.
func (c *Client[T]) In(tx *Tx) *TxClient[T] { return &TxClient[T]{c, tx} }

// read returns the row of an id of the client's type.
func (c *TxClient[T]) read(id *resourcepb.ID) (*txRow, error) {
	if err := c.client.checkID(id); err != nil {
		return nil, err
	}
	return c.tx.read(id)
}

// Get returns a resource, with the earlier changes of the transaction. The caller owns it. It fails as [Client.Get] does.
func (c *TxClient[T]) Get(id *resourcepb.ID) (*Object[T], error) {
	row, err := c.read(id)
	if err != nil {
		return nil, err
	}
	res := row.current()
	switch {
	case res == nil || id.GetUid() != "" && id.GetUid() != res.GetId().GetUid():
		return nil, fmt.Errorf("%s: %w", idString(id), storage.ErrNotFound)
	case id.GetType().GetGroupVersion() != res.GetId().GetType().GetGroupVersion():
		return nil, storage.GroupVersionMismatchError{RequestedType: codec.CloneID(id).GetType(), Stored: codec.Clone(res)}
	}
	return c.client.codec.Object(codec.Clone(res))
}

// Put stores an object when the transaction is committed. Without a version it creates the object, assigns a uid if there is none, and fails with
// [ErrExists] if the resource exists. With a version, as returned by Get, it replaces the resource. It fails with [storage.ErrCASFailure] if
// another version is stored, and with [storage.ErrWrongUid] if another uid is stored.
//
// After Delete in the same transaction, Put creates the resource again: without a version, and with the same uid, because a transaction has one
// effect on a key. Watches then return one update. The resource keeps no part of the deleted state. Put may be called again with the same object.
//
// Put writes nothing if the object equals the stored one. It sets a new generation unless only statuses differ, and sets the update time of each
// changed status. After the commit the object is the stored one, with its new version.
func (c *TxClient[T]) Put(o *Object[T]) error {
	row, err := c.read(o.ID)
	if err != nil {
		return err
	}
	current, id := row.current(), codec.CloneID(o.ID)
	switch {
	case current == nil && o.Version != "":
		return fmt.Errorf("put %s: %w", idString(id), storage.ErrCASFailure)
	case current != nil && o.Version == "" && (current.GetVersion() != "" || id.GetUid() == ""):
		return fmt.Errorf("put %s: %w: %w", idString(id), ErrExists, storage.ErrCASFailure)
	case current != nil && o.Version != current.GetVersion():
		return fmt.Errorf("put %s: %w", idString(id), storage.ErrCASFailure)
	case current != nil && id.GetUid() != current.GetId().GetUid():
		return fmt.Errorf("put %s: %w", idString(id), storage.ErrWrongUid)
	case row.stored != nil && id.GetUid() == "": // created again after Delete
		id.Uid = row.stored.GetId().GetUid()
	case row.stored != nil && id.GetUid() != row.stored.GetId().GetUid():
		return fmt.Errorf("put %s with another uid than the resource that the transaction has deleted: %w", idString(id), storage.ErrWrongUid)
	case id.GetUid() == "":
		id.Uid = ulid.Make().String()
	}
	o.ID = id
	var before *Object[T]
	if row.stored != nil && !row.isDelete {
		if before, err = c.client.codec.Object(row.stored); err != nil {
			return err
		}
	}
	after := c.client.codec.Copy(o)
	after.ID = id
	for name, status := range after.Status {
		if before == nil || !proto.Equal(before.Status[name], status) {
			status.UpdatedAt = timestamppb.Now()
		}
	}
	if !c.client.codec.Replace(before, after) {
		row.write = nil
		return nil
	}
	res, err := c.client.codec.Resource(after)
	if err != nil {
		return err
	}
	row.write = res
	row.finish = func(stored *resourcepb.Resource) {
		if final, err := c.client.codec.Object(stored); err == nil {
			*o = *final
		}
	}
	return nil
}

// Delete deletes a resource when the transaction is committed. It fails with [storage.ErrNotFound] if the resource does not exist or has another uid
// than id.
func (c *TxClient[T]) Delete(id *resourcepb.ID) error {
	row, err := c.read(id)
	if err != nil {
		return err
	}
	if res := row.current(); res == nil || id.GetUid() != "" && id.GetUid() != res.GetId().GetUid() {
		return fmt.Errorf("delete %s: %w", idString(id), storage.ErrNotFound)
	}
	row.write, row.isDelete = nil, row.stored != nil
	return nil
}
