package tables

import (
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// Tx is a running transaction. [Store.Update] and [Batch.Update] pass it to a function. It reads the state of a [View], overlaid by its own changes.
type Tx struct {
	accessSet
	r       *reading
	borrows bool // rows must be returned to the replica
}

func (tx *Tx) reading() *reading { return tx.r }

// newTx returns a transaction on a state of the store; nil selects the current View.
func newTx(s *Store, at *replica.View[*entry]) *Tx {
	tx := &Tx{}
	if at == nil {
		at, tx.borrows = s.copy.Borrow(), true
	}
	tx.rows = at
	tx.r = &reading{store: s, rows: at, tx: &tx.accessSet, recordsReads: true}
	return tx
}

// run calls the function of an Update.
func (tx *Tx) run(fn func(*Tx) error) error {
	defer tx.end()
	err := fn(tx)
	tx.r.assertUnchanged()
	return err
}

// end makes the transaction refuse further calls. It returns the borrowed view first, so that the view need not record the transaction's own changes.
func (tx *Tx) end() {
	if tx.hasEnded = true; tx.borrows {
		tx.borrows = false
		tx.rows.Return()
	}
}

// UncheckedReader returns a reader of the same state as tx, including its changes, whose reads are not compared when tx is committed. Use it for
// advisory reads, such as a list of many objects to choose one from, and then read the chosen object again through tx.
func (tx *Tx) UncheckedReader() Reader {
	unchecked := *tx.r
	unchecked.recordsReads = false
	return &View{&unchecked}
}

// Edit returns a copy of an object, to be changed and passed to [Table.Put]. It fails with the errors of [Table.Get].
func (t *Table[T]) Edit(tx *Tx, id *resourcepb.ID) (*typed.Object[T], error) {
	o, err := t.Get(tx, id)
	if err != nil {
		return nil, err
	}
	return t.codec.Copy(o), nil
}

// Put stores an object when tx is committed. Later reads of tx include it. The store owns the object afterwards.
//
// Without a version, Put creates the object:
//   - It assigns a uid if the object has none: the uid of the object that tx has deleted under this key, or a new one.
//   - It fails with [typed.ErrExists] and [storage.ErrCASFailure] if the store or tx holds an object of this key.
//
// With a version, as returned by [Table.Edit] or an earlier read, Put replaces the object at this version:
//   - It fails with [storage.ErrCASFailure] if the store holds another version, and with [storage.ErrWrongUid] if it holds another uid.
//   - It does not write an object if the stored object is equal.
//
// Put sets a new generation unless only statuses have changed. Like all errors of fn, these are verified against the latest state before
// [Store.Update] returns them.
func (t *Table[T]) Put(tx *Tx, o *typed.Object[T]) error {
	current, err := tx.readCurrent(t.table, o.ID)
	if err != nil {
		return err
	}
	was, present := current.stored, current.stored != nil
	switch {
	case current.result != nil && o.Version == "" && (current.result.version != "" || o.ID.GetUid() == ""):
		return fmt.Errorf("put %s: %w: %w", idString(o.ID), typed.ErrExists, storage.ErrCASFailure)
	case current.result == nil && o.Version != "" || current.result != nil && o.Version != current.result.version:
		return fmt.Errorf("put %s: %w", idString(o.ID), storage.ErrCASFailure)
	case current.result != nil && o.ID.GetUid() != current.result.id.GetUid():
		return fmt.Errorf("put %s: %w", idString(o.ID), storage.ErrWrongUid)
	case current.result == nil && present && o.ID.GetUid() != "" && o.ID.GetUid() != was.id.GetUid():
		return fmt.Errorf("put %s with another uid than the object that the transaction has deleted: %w", idString(o.ID), storage.ErrWrongUid)
	case o.ID.GetUid() == "" && present:
		o.ID = codec.CloneID(o.ID)
		o.ID.Uid = was.id.GetUid()
	case o.ID.GetUid() == "":
		o.ID = codec.CloneID(o.ID)
		o.ID.Uid = ulid.Make().String()
	}
	if present && was.object != nil {
		if !t.codec.Replace(was.object.(*typed.Object[T]), o) {
			if err := tx.checkUnique(t.table, was, was); err != nil {
				return err
			}
			tx.setChange(t.table, was.key, nil)
			return nil
		}
	} else if o.Generation == "" || !present {
		o.Generation = ulid.Make().String()
	}
	res, err := t.codec.Resource(o)
	if err != nil {
		return err
	}
	size := sizeOf(res)
	if size > maxSize {
		return fmt.Errorf("put %s: %w: the object has %d bytes, the limit is %d", idString(o.ID), storage.ErrTooLarge, size, maxSize)
	}
	now := &entry{key: key.Of(o.ID), id: o.ID, version: o.Version, table: t.table, object: o}
	now.values, now.digest = t.values(o), digestOf(t.encode, o)
	if err := tx.checkUnique(t.table, was, now); err != nil {
		return err
	}
	tx.setChange(t.table, now.key, &change{stored: was, result: now, res: res, size: size})
	return nil
}

// Delete deletes an object when tx is committed. Later reads of tx do not include it. It fails with [storage.ErrNotFound] if the object does not
// exist or has another uid than id.
func (t *Table[T]) Delete(tx *Tx, id *resourcepb.ID) error {
	current, err := tx.readCurrent(t.table, id)
	if err != nil {
		return err
	}
	if current.result == nil || id.GetUid() != "" && id.GetUid() != current.result.id.GetUid() {
		return fmt.Errorf("delete %s: %w", idString(id), storage.ErrNotFound)
	}
	if current.stored == nil {
		tx.setChange(t.table, current.result.key, nil)
		return nil
	}
	tx.setChange(t.table, current.stored.key, &change{stored: current.stored})
	return tx.checkUnique(t.table, current.stored, nil)
}

// readCurrent returns the stored entry of an id and its entry in the transaction. It counts as a read.
func (tx *Tx) readCurrent(t *table, id *resourcepb.ID) (change, error) {
	if _, err := tx.r.get(t, id); err != nil {
		return change{}, err
	}
	was := tx.find(key.Of(id))
	current := change{stored: was.stored, result: was.stored}
	if was.change != nil {
		current.result = was.change.result
	}
	return current, nil
}

// sizeOf clears the version of a resource, which does not count, and returns the size.
func sizeOf(res *resourcepb.Resource) int {
	res.Version = ""
	return codec.Size(res)
}

// checkSize returns an error if the transaction is too large for the backend.
func (tx *Tx) checkSize() error {
	size := tx.size
	for t, g := range tx.guards {
		if g.writes {
			size += codec.Size(&resourcepb.Resource{Id: t.guardID()})
		}
	}
	claims := tx.claimOperations()
	for i := range claims {
		if claims[i].Write != nil {
			size += codec.Size(claims[i].Write)
		}
	}
	if size > maxSize {
		return fmt.Errorf("%w: the objects changed by the Update have %d bytes, the limit is %d: use Batch",
			storage.ErrTooLarge, size, maxSize)
	}
	return tx.r.store.checkOpCount(len(tx.touchedKeys) + len(tx.guards) + len(claims))
}
