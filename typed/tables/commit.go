package tables

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Update calls fn with a transaction, and then commits what fn has done, all of it or nothing.
//
// # Isolation
//
// No lock is held. fn reads one state of the store, with its own changes on top, and may take its time. Update then has the database
// compare every object that fn has read with what is stored now, also those that fn found absent and those that its lists have returned,
// in the same step as it writes. If another writer was faster, in whichever process, nothing is written: Update waits until the copy in
// memory has seen what the other one did, and calls fn again, until ctx is over. So transactions are strictly serializable by key: no
// update is lost, and no two transactions each write what the other one has read. A list shows what is there: an object that another
// transaction creates in the meantime does not conflict with it, unless the table is [Table.WithGuard]. What is read through [Tx.UncheckedReader]
// is not compared.
//
// If fn returns an error, nothing is written, and Update returns the error; if fn has changed nothing, nothing is written either. Both are
// checked: unless what fn has read is still so, fn is called again. (An error of fn cannot be checked where the watches of the backend are
// no [storage.Bookmarker] and fn has read more than fits a transaction.) What cannot be checked before ctx is over, or the store is closed,
// is no answer: Update then returns the error that says so, and of fn's no more than its text.
//
// # What fn may do
//
// fn may be called several times, so it must have no effect but by tx and by variables that it sets anew each time. It must not call
// methods of the Store that write.
//
// # Errors
//
// [storage.ErrTooLarge]: fn has read and changed more objects than the backend takes in one transaction ([storage.Transactor].MaxOps), or
// changed more than 1 MiB; use [Store.Batch], or [Tx.UncheckedReader]. [storage.ErrInconsistent]: the answer of the database was lost, and the
// changes have been made, all of them, or not; Update does not try again, because fn may have been carried out: look, by a [Linearizable]
// View. The context's error together with [storage.ErrCASFailure]: others were always faster. [storage.ErrClosed] after Close.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	return s.update(ctx, nil, fn)
}

// update is Update. If tx is not nil, it is the first try, in which fn has been called already, without an error.
func (s *Store) update(ctx context.Context, tx *Tx, fn func(*Tx) error) error {
	var cut *replica.View[*entry] // proven to be not older than this call; nil for none
	for {
		var refused error
		proven := cut != nil
		if tx == nil {
			tx = newTx(s, cut)
			refused = tx.run(fn)
		}
		if refused != nil || !tx.hasChanges() {
			if proven {
				return refused
			}
			still, at, err := s.verifyReads(ctx, tx)
			switch {
			case err != nil && refused == nil:
				return err
			case err != nil && !errors.Is(err, storage.ErrTooLarge): // whoever looks for the error in what is returned would believe it
				return fmt.Errorf("update: %w: so what its function has returned is not checked: %s", err, refused.Error())
			case err != nil, still:
				return refused
			}
			cut, tx = at, nil
			continue
		}
		if err := tx.checkSize(); err != nil {
			return err
		}
		ops, keys := tx.operations()
		err := s.commit(ctx, tx, ops)
		lost, conflict := conflictOf(err, keys)
		if !conflict {
			return err
		}
		if err := s.awaitConflict(ctx, tx, lost); err != nil {
			return fmt.Errorf("update: %w", errors.Join(err, storage.ErrCASFailure))
		}
		cut, tx = nil, nil
	}
}

// keyVersion is a key with the version that a transaction has seen, "" for nothing.
type keyVersion struct {
	key     key.Key
	version string
}

// conflictOf returns what a commit was refused for, if another writer was faster.
func conflictOf(err error, keys []keyVersion) (keyVersion, bool) {
	var op *storage.OpError
	if !errors.As(err, &op) || !errors.Is(op.Err, storage.ErrCASFailure) && !errors.Is(op.Err, storage.ErrWrongUid) {
		return keyVersion{}, false
	}
	return keys[op.Index], true
}

// awaitConflict waits until the copy has seen what came in the way of a transaction. That may be over already, before the copy has it: then a
// bookmark ends the waiting.
func (s *Store) awaitConflict(ctx context.Context, tx *Tx, at keyVersion) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if !s.copy.Bookmarks() {
		return s.copy.AwaitChange(waiting, tx.rows, at.key, at.version)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.copy.Barrier(waiting) == nil {
			cancel()
		}
	}()
	err := s.copy.AwaitChange(waiting, tx.rows, at.key, at.version)
	over := waiting.Err() != nil && ctx.Err() == nil
	cancel()
	<-done
	if over {
		return nil
	}
	return err
}

// verifyReads finds out whether all that a transaction has read is still so, and where it is not, returns a state that is proven to be not older
// than the call, if there are such states. A View would not do: it shows own writes before what others have written between.
func (s *Store) verifyReads(ctx context.Context, tx *Tx) (bool, *replica.View[*entry], error) {
	if s.copy.Bookmarks() {
		if err := s.copy.Barrier(ctx); err != nil {
			return false, nil, err
		}
		now := &reading{store: s, rows: s.copy.Cut()}
		for i := range tx.touchedKeys {
			if was := &tx.touchedKeys[i]; versionOf(now.row(was.key)) != versionOf(was.stored) {
				return false, now.rows, nil
			}
		}
		return !tx.hasListed, now.rows, nil
	}
	ops, keys := tx.operations()
	if len(ops) == 0 {
		return true, nil, nil
	}
	if err := s.checkOpCount(len(ops)); err != nil {
		return false, nil, err
	}
	_, err := s.transactor.Commit(ctx, ops)
	if lost, conflict := conflictOf(err, keys); conflict {
		return false, nil, s.copy.AwaitChange(ctx, tx.rows, lost.key, lost.version)
	}
	return err == nil, nil, err
}

// operations are the transaction as the database takes it, with what each operation expects.
func (tx *Tx) operations() (ops []storage.Op, keys []keyVersion) {
	ops = make([]storage.Op, 0, len(tx.touchedKeys)+len(tx.guards))
	keys = make([]keyVersion, 0, cap(ops))
	for i := range tx.touchedKeys {
		t := &tx.touchedKeys[i]
		keys = append(keys, keyVersion{t.key, versionOf(t.stored)})
		switch {
		case t.change != nil && t.change.result == nil:
			ops = append(ops, storage.Op{Delete: t.stored.id, Version: t.stored.version, Present: true})
		case t.change != nil:
			t.change.res.Version = versionOf(t.stored)
			ops = append(ops, storage.Op{Write: t.change.res})
		case t.stored != nil:
			ops = append(ops, storage.Op{Check: t.stored.id, Version: t.stored.version})
		default:
			// The id that the program has given is the program's, which may have changed it since.
			ops = append(ops, storage.Op{Check: t.key.ID("", t.table.typ.GetGroupVersion())})
		}
	}
	for t, g := range tx.guards {
		id := t.guardID()
		keys = append(keys, keyVersion{key.Of(id), g.version})
		if g.writes {
			ops = append(ops, storage.Op{Write: &resourcepb.Resource{Id: id, Version: g.version}})
		} else {
			ops = append(ops, storage.Op{Check: id, Version: g.version})
		}
	}
	return ops, keys
}

// commit commits the operations of a transaction, and shows readers what they have done, all at once.
func (s *Store) commit(ctx context.Context, tx *Tx, ops []storage.Op) error {
	keys := make([]key.Key, 0, len(ops))
	var deleted []*resourcepb.Resource
	for i := range ops {
		switch {
		case ops[i].Write != nil:
			keys = append(keys, key.Of(ops[i].Write.GetId()))
		case ops[i].Delete != nil:
			keys = append(keys, key.Of(ops[i].Delete))
			deleted = append(deleted, &resourcepb.Resource{Id: ops[i].Delete, Version: ops[i].Version})
		}
	}
	writing := s.copy.Begin(keys)
	results, err := s.submit(ctx, ops)
	if err != nil {
		writing.EndWith(nil, nil)
		return err
	}
	rows := make([]*replica.Row[*entry], 0, len(keys))
	for _, res := range results {
		if res != nil {
			k := key.Of(res.GetId())
			row := &replica.Row[*entry]{Key: k, Version: res.GetVersion(), Weight: replica.Weight(res)}
			row.Value = s.entryOfWrite(tx.changeOf(k), res)
			rows = append(rows, row)
		}
	}
	if unsure := writing.EndWith(rows, deleted); len(unsure) > 0 && s.copy.Bookmarks() {
		// The copy had to be listed anew meanwhile. What is committed is committed, also if ctx ends here.
		_ = s.copy.Barrier(ctx)
	}
	return nil
}

// submit commits operations. A lone write is no transaction: a backend may take it together with those of others.
func (s *Store) submit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if len(ops) > 1 || ops[0].Write == nil {
		return s.transactor.Commit(ctx, ops)
	}
	res, err := s.backend.WriteCAS(ctx, ops[0].Write)
	if errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid) {
		err = &storage.OpError{Err: err}
	}
	return []*resourcepb.Resource{res}, err
}

// entryOfWrite returns the entry of what was written: that of the transaction, if decoding would make the same.
func (s *Store) entryOfWrite(c *change, res *resourcepb.Resource) *entry {
	if c == nil || c.result == nil || c.result.table == nil || c.result.table.setVersion == nil {
		return s.decode(res)
	}
	e := c.result
	e.version = res.GetVersion()
	e.table.setVersion(e.object, e.version)
	e.values = e.table.values(e.object) // the version may be one of them
	e.digest = digestOf(e.table.encode, e.object)
	return e
}
