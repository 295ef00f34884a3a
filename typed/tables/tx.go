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

// Tx is a transaction under way, for the function that [Store.Update] or [Batch.Update] calls with it. What it reads is the store as a
// [View] shows it, with its own changes.
type Tx struct {
	accessSet
	r       *reading
	borrows bool // rows must be returned to the replica
}

func (tx *Tx) reading() *reading { return tx.r }

// newTx returns a transaction on a state of the store; nil is that of a View.
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

// end has the transaction take nothing any more, and gives back what it reads: its own change would have to be noted for that.
func (tx *Tx) end() {
	if tx.hasEnded = true; tx.borrows {
		tx.borrows = false
		tx.rows.Return()
	}
}

// UncheckedReader reads what tx reads, its own changes included, without demanding that it is still so when tx is committed. Use it for what only
// advises, such as a list of many objects to choose one from: then read that one again through tx.
func (tx *Tx) UncheckedReader() Reader {
	unchecked := *tx.r
	unchecked.recordsReads = false
	return &View{&unchecked}
}

// Edit returns a copy of an object, to be changed and given to [Table.Put]. Its errors are those of [Table.Get].
func (t *Table[T]) Edit(tx *Tx, id *resourcepb.ID) (*typed.Object[T], error) {
	o, err := t.Get(tx, id)
	if err != nil {
		return nil, err
	}
	return t.codec.Copy(o), nil
}

// Put stores an object when tx is committed, and shows it to what tx reads from now on. The object belongs to the store then.
//
// Without a version it is created: it gets a uid if it has none (that of the object which tx has deleted under this key, if so), and if
// the store or tx holds an object of this key, the error is [storage.ErrCASFailure]. With a version, it replaces the object of this
// version, as [Table.Edit] or an earlier read has returned it: if the store holds another version by now, the error is
// [storage.ErrCASFailure], if it holds another uid [storage.ErrWrongUid], and nothing is put. An object that is as the store has it is not
// written. The generation is set anew, unless nothing but statuses has changed.
//
// As other errors of fn, these are checked against the newest state before [Store.Update] returns them.
func (t *Table[T]) Put(tx *Tx, o *typed.Object[T]) error {
	held, err := tx.readCurrent(t.table, o.ID)
	if err != nil {
		return err
	}
	was, present := held.stored, held.stored != nil
	again := held.result != nil && o.Version == "" && o.ID.GetUid() == "" // what the transaction has created is created again
	switch {
	case held.result == nil && o.Version != "" || held.result != nil && o.Version != held.result.version || again:
		return fmt.Errorf("put %s: %w", idString(o.ID), storage.ErrCASFailure)
	case held.result != nil && o.ID.GetUid() != held.result.id.GetUid():
		return fmt.Errorf("put %s: %w", idString(o.ID), storage.ErrWrongUid)
	case held.result == nil && present && o.ID.GetUid() != "" && o.ID.GetUid() != was.id.GetUid():
		return fmt.Errorf("put %s, which the transaction has deleted, with another uid: %w", idString(o.ID), storage.ErrWrongUid)
	case o.ID.GetUid() == "" && present:
		o.ID = codec.CloneID(o.ID)
		o.ID.Uid = was.id.GetUid()
	case o.ID.GetUid() == "":
		o.ID = codec.CloneID(o.ID)
		o.ID.Uid = ulid.Make().String()
	}
	if present && was.object != nil {
		old := was.object.(*typed.Object[T])
		if t.codec.Same(old, o) {
			tx.setChange(t.table, was.key, nil)
			return nil
		}
		probe := *o
		probe.Status = old.Status
		if o.Generation = old.Generation; !t.codec.Same(old, &probe) {
			o.Generation = ulid.Make().String()
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
		return fmt.Errorf("put %s: %w: it has %d bytes, the most is %d", idString(o.ID), storage.ErrTooLarge, size, maxSize)
	}
	now := &entry{key: key.Of(o.ID), id: o.ID, version: o.Version, table: t.table, object: o}
	now.values, now.digest = t.values(o), digestOf(t.encode, o)
	tx.setChange(t.table, now.key, &change{stored: was, result: now, res: res, size: size})
	return nil
}

// Delete deletes an object when tx is committed, and hides it from what tx reads from now on. If there is none, or one with another uid
// than that of id, the error is [storage.ErrNotFound].
func (t *Table[T]) Delete(tx *Tx, id *resourcepb.ID) error {
	held, err := tx.readCurrent(t.table, id)
	if err != nil {
		return err
	}
	if held.result == nil || id.GetUid() != "" && id.GetUid() != held.result.id.GetUid() {
		return fmt.Errorf("delete %s: %w", idString(id), storage.ErrNotFound)
	}
	if held.stored == nil {
		tx.setChange(t.table, held.result.key, nil)
		return nil
	}
	tx.setChange(t.table, held.stored.key, &change{stored: held.stored})
	return nil
}

// readCurrent returns what the store holds under an id, and what the transaction has put in its place so far. It counts as read.
func (tx *Tx) readCurrent(t *table, id *resourcepb.ID) (change, error) {
	if _, err := tx.r.get(t, id); err != nil {
		return change{}, err
	}
	was := tx.find(key.Of(id))
	held := change{stored: was.stored, result: was.stored}
	if was.change != nil {
		held.result = was.change.result
	}
	return held, nil
}

// sizeOf returns the size of a resource that is going to be written, and takes the version from it, which does not count.
func sizeOf(res *resourcepb.Resource) int {
	res.Version = ""
	return codec.Size(res)
}

// checkSize returns why the transaction is too large for the backend.
func (tx *Tx) checkSize() error {
	size := tx.size
	for t, g := range tx.guards {
		if g.writes {
			size += codec.Size(&resourcepb.Resource{Id: t.guardID()})
		}
	}
	if size > maxSize {
		return fmt.Errorf("%w: the objects that the Update has changed have %d bytes together, the most is %d: use Batch",
			storage.ErrTooLarge, size, maxSize)
	}
	return tx.r.store.checkOpCount(len(tx.touchedKeys) + len(tx.guards))
}
