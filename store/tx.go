package store

import (
	"fmt"
	"maps"
	"slices"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// Tx is a transaction under way, for the function that [Store.Update] or [Batch.Update] calls with it. What it reads is the store as a
// [View] shows it, with its own changes.
type Tx struct {
	r       *reading
	reads   map[key.Key]read
	changes map[key.Key]*change
	listed  bool
	guards  map[*table]bool // those that are checked (false) or written (true)
}

func (tx *Tx) reading() *reading { return tx.r }

// read is what a transaction has seen under a key: nothing, if the entry is nil.
type read struct {
	id   *resourcepb.ID
	seen *entry
}

// change is what a transaction does to a key.
type change struct {
	was  *entry               // what the store holds; nil for nothing
	now  *entry               // what the transaction puts in its place; nil for nothing
	res  *resourcepb.Resource // what is written, without its version
	size int
}

// newTx returns a transaction on a state of the store; nil is that of a View.
func newTx(s *Store, at *replica.View[*entry]) *Tx {
	if at == nil {
		at = s.copy.View()
	}
	tx := &Tx{reads: map[key.Key]read{}, changes: map[key.Key]*change{}, guards: map[*table]bool{}}
	tx.r = &reading{store: s, rows: at, tx: tx, noted: true}
	return tx
}

// Unchecked reads what tx reads, its own changes included, without demanding that it is still so when tx is committed. Use it for what only
// advises, such as a list of many objects to choose one from: then read that one again through tx.
func (tx *Tx) Unchecked() Reader {
	unchecked := *tx.r
	unchecked.noted = false
	return &View{&unchecked}
}

// noteRead notes that what the store holds under a key was seen.
func (tx *Tx) noteRead(k key.Key, id *resourcepb.ID, e *entry) {
	if _, known := tx.reads[k]; !known {
		tx.reads[k] = read{id, e}
	}
}

// noteList notes what a list of a table has found in the store.
func (tx *Tx) noteList(t *table, found []*entry) {
	tx.listed = true
	if t.guarded {
		tx.guards[t] = tx.guards[t]
		return
	}
	for _, e := range found {
		tx.noteRead(e.key, e.id, e)
	}
}

// merge puts the changes of a transaction into what a query has found.
func (tx *Tx) merge(t *table, q query, found []*entry) []*entry {
	mine := false
	for _, c := range tx.changes {
		mine = mine || c.was != nil && c.was.table == t || c.now != nil && c.now.table == t
	}
	if !mine {
		return found
	}
	found = slices.DeleteFunc(found, func(e *entry) bool { return tx.changes[e.key] != nil })
	for _, c := range tx.changes {
		if c.now != nil && c.now.table == t && q.match(c.now) {
			found = append(found, c.now)
		}
	}
	return arranged(q, found)
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
// the store holds an object of this key, the error is [storage.ErrCASFailure]. With a version, it replaces the object of this version, as
// [Table.Edit] or an earlier read has returned it: if the store holds another version by now, the error is [storage.ErrCASFailure], if it
// holds another uid [storage.ErrWrongUid], and nothing is put. An object that is as the store has it is not written. The generation is
// set anew, unless nothing but statuses has changed.
//
// As other errors of fn, these are checked against the newest state before [Store.Update] returns them.
func (t *Table[T]) Put(tx *Tx, o *typed.Object[T]) error {
	held, err := tx.held(t.table, o.ID)
	if err != nil {
		return err
	}
	was, present := held.was, held.was.present()
	switch {
	case held.now == nil && o.Version != "" || held.now != nil && o.Version != held.now.version:
		return fmt.Errorf("put %s: %w", named(o.ID), storage.ErrCASFailure)
	case held.now != nil && o.ID.GetUid() != held.now.id.GetUid():
		return fmt.Errorf("put %s: %w", named(o.ID), storage.ErrWrongUid)
	case held.now == nil && present && o.ID.GetUid() != "" && o.ID.GetUid() != was.id.GetUid():
		return fmt.Errorf("put %s, which the transaction has deleted, with another uid: %w", named(o.ID), storage.ErrWrongUid)
	case o.ID.GetUid() == "" && present:
		o.ID = was.id
	case o.ID.GetUid() == "":
		o.ID = proto.CloneOf(o.ID)
		o.ID.Uid = ulid.Make().String()
	}
	if present && was.object != nil {
		old := was.object.(*typed.Object[T])
		if t.codec.Same(old, o) {
			delete(tx.changes, was.key)
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
	now := &entry{key: key.Of(o.ID), id: o.ID, version: o.Version, table: t.table, object: o}
	now.values, now.digest = t.values(o), digestOf(t.table, o)
	tx.change(t.table, &change{was: was, now: now, res: res})
	return nil
}

// Delete deletes an object when tx is committed, and hides it from what tx reads from now on. If there is none, or one with another uid
// than that of id, the error is [storage.ErrNotFound].
func (t *Table[T]) Delete(tx *Tx, id *resourcepb.ID) error {
	held, err := tx.held(t.table, id)
	if err != nil {
		return err
	}
	if held.now == nil || id.GetUid() != "" && id.GetUid() != held.now.id.GetUid() {
		return fmt.Errorf("delete %s: %w", named(id), storage.ErrNotFound)
	}
	if !held.was.present() {
		delete(tx.changes, held.now.key)
		return nil
	}
	res := held.was.damaged
	if res == nil {
		if res, err = t.encode(held.was.object); err != nil {
			return err
		}
	}
	res = proto.CloneOf(res)
	if res.Metadata == nil {
		res.Metadata = map[string]string{}
	}
	res.Metadata[DeletedMark] = "true"
	if proto.Size(res) > maxSize {
		res.Data = nil // what is as large as may be has no room for the mark
	}
	tx.change(t.table, &change{was: held.was, res: res})
	return nil
}

// held returns what the store holds under an id, and what the transaction has put in its place so far. It counts as read.
func (tx *Tx) held(t *table, id *resourcepb.ID) (change, error) {
	if _, err := tx.r.get(t, id); err != nil {
		return change{}, err
	}
	k := key.Of(id)
	held := change{was: tx.reads[k].seen}
	if held.was.present() {
		held.now = held.was
	}
	if c := tx.changes[k]; c != nil {
		held.now = c.now
	}
	return held, nil
}

func (tx *Tx) change(t *table, c *change) {
	c.size = proto.Size(c.res)
	tx.changes[key.Of(c.res.GetId())] = c
	if t.guarded {
		tx.guards[t] = true
	}
}

// savepoint is a transaction as it was.
type savepoint struct {
	reads   map[key.Key]read
	changes map[key.Key]*change
	listed  bool
	guards  map[*table]bool
}

func (tx *Tx) savepoint() savepoint {
	return savepoint{maps.Clone(tx.reads), maps.Clone(tx.changes), tx.listed, maps.Clone(tx.guards)}
}

func (tx *Tx) restore(p savepoint) {
	tx.reads, tx.changes, tx.listed, tx.guards = p.reads, p.changes, p.listed, p.guards
}
