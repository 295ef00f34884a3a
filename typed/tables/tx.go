package tables

import (
	"fmt"
	"maps"
	"slices"

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
	r           *reading
	touchedKeys []touchedKey
	keyIndex    map[key.Key]int // where touched has a key, once there are many
	undo        []undoRecord
	size        int // of all that is written
	hasListed   bool
	guards      map[*table]guard
	hasEnded    bool // nothing that is done now would be committed
	borrows     bool // rows is borrowed
}

func (tx *Tx) reading() *reading { return tx.r }

// guard is what a transaction does with the guard of a table: it checks it, or writes it.
type guard struct {
	version string // that the store holds; "" for none
	writes  bool
}

// touchedKey is a key that a transaction has read.
type touchedKey struct {
	key    key.Key
	table  *table
	stored *entry // nil for nothing
	change *change
}

// change is what a transaction does to a key.
type change struct {
	stored *entry               // what the store holds; nil for nothing
	result *entry               // what the transaction puts in its place; nil for nothing
	res    *resourcepb.Resource // what is written, without its version
	size   int
}

// undoRecord is a change as it was before another one took its place.
type undoRecord struct {
	at     int
	change *change
}

// newTx returns a transaction on a state of the store; nil is that of a View.
func newTx(s *Store, at *replica.View[*entry]) *Tx {
	tx := &Tx{}
	if at == nil {
		at, tx.borrows = s.copy.Borrow(), true
	}
	tx.r = &reading{store: s, rows: at, tx: tx, recordsReads: true}
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
		tx.r.rows.Return()
	}
}

// checkOpen refuses a transaction that a program has kept.
func (tx *Tx) checkOpen() error {
	if tx != nil && tx.hasEnded {
		return fmt.Errorf("%w: the transaction is over: it is good until the function that got it returns", storage.ErrInvalid)
	}
	return nil
}

// linearSearchKeys is how many keys are found faster by a look at each.
const linearSearchKeys = 8

// find returns what a transaction has done with a key, nil for nothing. It is good until the next key is touched.
func (tx *Tx) find(k key.Key) *touchedKey {
	if tx.keyIndex != nil {
		if i, known := tx.keyIndex[k]; known {
			return &tx.touchedKeys[i]
		}
		return nil
	}
	for i := range tx.touchedKeys {
		if tx.touchedKeys[i].key == k {
			return &tx.touchedKeys[i]
		}
	}
	return nil
}

// changeOf returns the change of a key, nil for none.
func (tx *Tx) changeOf(k key.Key) *change {
	if t := tx.find(k); t != nil {
		return t.change
	}
	return nil
}

// hasChanges reports whether there is something to write.
func (tx *Tx) hasChanges() bool {
	return slices.ContainsFunc(tx.touchedKeys, func(t touchedKey) bool { return t.change != nil })
}

// UncheckedReader reads what tx reads, its own changes included, without demanding that it is still so when tx is committed. Use it for what only
// advises, such as a list of many objects to choose one from: then read that one again through tx.
func (tx *Tx) UncheckedReader() Reader {
	unchecked := *tx.r
	unchecked.recordsReads = false
	return &View{&unchecked}
}

// noteRead notes that what the store holds under a key was seen.
func (tx *Tx) noteRead(k key.Key, t *table, e *entry) {
	if tx.find(k) != nil {
		return
	}
	tx.touchedKeys = append(tx.touchedKeys, touchedKey{key: k, table: t, stored: e})
	switch n := len(tx.touchedKeys); {
	case tx.keyIndex != nil:
		tx.keyIndex[k] = n - 1
	case n > linearSearchKeys:
		tx.keyIndex = make(map[key.Key]int, 4*linearSearchKeys)
		for i := range tx.touchedKeys {
			tx.keyIndex[tx.touchedKeys[i].key] = i
		}
	}
}

// noteList notes what a list of a table has found in the store.
func (tx *Tx) noteList(t *table, found []*entry) {
	tx.hasListed = true
	if t.hasGuard {
		tx.noteGuard(t, false)
		return
	}
	for _, e := range found {
		tx.noteRead(e.key, t, e)
	}
}

// noteGuard notes that a table was listed, or changed.
func (tx *Tx) noteGuard(t *table, written bool) {
	g, noted := tx.guards[t]
	if !noted {
		g.version = versionOf(tx.r.row(key.Of(t.guardID())))
	}
	g.writes = g.writes || written
	if tx.guards == nil {
		tx.guards = map[*table]guard{}
	}
	tx.guards[t] = g
}

// merge puts the changes of a transaction into what a query has found.
func (tx *Tx) merge(t *table, q query, found []*entry) []*entry {
	var mine []*entry
	hidden := map[key.Key]bool{}
	for i := range tx.touchedKeys {
		c := tx.touchedKeys[i].change
		if c == nil {
			continue
		}
		hidden[tx.touchedKeys[i].key] = true
		if c.result != nil && c.result.table == t && q.match(c.result) {
			mine = append(mine, c.result)
		}
	}
	if len(hidden) == 0 {
		return found
	}
	found = slices.DeleteFunc(found, func(e *entry) bool { return hidden[e.key] })
	return sortEntries(q, append(found, mine...))
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
	now.values, now.digest = t.values(o), digestOf(t.table, o)
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

// setChange sets what is done to a key that was read; nil is nothing.
func (tx *Tx) setChange(t *table, k key.Key, c *change) {
	at := tx.find(k)
	if at.change == nil && c == nil {
		return
	}
	if at.change != nil {
		tx.size -= at.change.size
	}
	if c != nil {
		tx.size += c.size
	}
	i := len(tx.touchedKeys) - 1
	if tx.keyIndex != nil {
		i = tx.keyIndex[k]
	} else {
		for tx.touchedKeys[i].key != k {
			i--
		}
	}
	tx.undo = append(tx.undo, undoRecord{i, at.change})
	if at.change = c; t.hasGuard {
		tx.noteGuard(t, true)
	}
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

// savepoint is a transaction as it was.
type savepoint struct {
	touchedKeys, undo, size int
	hasListed               bool
	guards                  map[*table]guard
}

func (tx *Tx) savepoint() savepoint {
	return savepoint{len(tx.touchedKeys), len(tx.undo), tx.size, tx.hasListed, maps.Clone(tx.guards)}
}

func (tx *Tx) restore(p savepoint) {
	for len(tx.undo) > p.undo {
		last := tx.undo[len(tx.undo)-1]
		tx.touchedKeys[last.at].change = last.change
		tx.undo = tx.undo[:len(tx.undo)-1]
	}
	for _, t := range tx.touchedKeys[p.touchedKeys:] {
		delete(tx.keyIndex, t.key)
	}
	tx.touchedKeys, tx.size, tx.hasListed, tx.guards = tx.touchedKeys[:p.touchedKeys], p.size, p.hasListed, p.guards
}
