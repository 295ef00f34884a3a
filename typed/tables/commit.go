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

// Update calls fn with a transaction and then commits all changes of fn, or none.
//
// # Isolation
//
// No lock is held while fn runs, so fn may take its time. A transaction proceeds like this:
//
//  1. fn reads one state of the store, overlaid by its own changes.
//  2. The database compares every object that fn has read with the stored one, in the same step as it writes. This includes objects that fn
//     found absent and objects that its lists have returned.
//  3. If another writer of any process was faster, nothing is written. Update waits until the copy in memory has the conflicting change, and
//     calls fn again, until ctx ends.
//
// So transactions are strictly serializable by key: no update is lost, and no two transactions each write an object that the other one has read.
// An object that another transaction creates does not conflict with an earlier list, unless the table has a guard ([Table.WithGuard]). Reads
// through [Tx.UncheckedReader] are not compared.
//
// Update writes nothing if fn returns an error, which Update returns, or if fn changes nothing. It verifies the reads in both cases, and calls fn
// again if they are outdated. One case cannot be verified: fn fails, the backend's watches are not a [storage.Bookmarker], and fn has read more
// than fits a transaction. If ctx ends or the store is closed before the verification, Update returns that error, with only the text of fn's
// error.
//
// # Rules for fn
//
// fn may be called several times. It must have no effects except through tx and through variables that it sets anew in each call. It must not call
// writing methods of the Store.
//
// # Errors
//
//   - [storage.ErrTooLarge]: fn has accessed more objects than the backend allows in a transaction ([storage.Transactor].MaxOps), or has changed
//     more than 1 MiB. Use [Store.Batch] or [Tx.UncheckedReader].
//   - [storage.ErrInconsistent]: the database's answer was lost. Either all changes were made or none. Update does not retry, because that could
//     apply fn twice; read a [Linearizable] View to find out.
//   - the context's error together with [storage.ErrCASFailure]: other writers were faster until the context ended.
//   - [storage.ErrClosed]: the store is closed.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	return s.update(ctx, nil, fn, true)
}

// errConflict is returned by update without retries if another writer was faster. The copy has the writer's change then.
var errConflict = errors.New("another writer was faster")

// update implements Update. A non-nil tx is the first attempt: fn has already been called for it without an error.
func (s *Store) update(ctx context.Context, tx *Tx, fn func(*Tx) error, retries bool) error {
	var cut *replica.View[*entry] // a state proven to be no older than this call; nil for none
	for {
		var fnErr error
		proven := cut != nil
		if tx == nil {
			tx = newTx(s, cut)
			fnErr = tx.run(fn)
		}
		if fnErr != nil || !tx.hasChanges() {
			if proven {
				return fnErr
			}
			valid, current, err := s.verifyReads(ctx, tx)
			switch {
			case err != nil && fnErr == nil:
				return err
			case err != nil && !errors.Is(err, storage.ErrTooLarge): // do not wrap fnErr: errors.Is must not find an unverified error
				return fmt.Errorf("update: %w: cannot verify the error of its function: %s", err, fnErr.Error())
			case err != nil, valid:
				return fnErr
			}
			cut, tx = current, nil
			continue
		}
		if err := tx.checkSize(); err != nil {
			return err
		}
		ops, keys := tx.operations()
		err := s.commit(ctx, tx, ops)
		conflict, found := conflictOf(err, keys)
		if !found {
			return err
		}
		if err := s.awaitConflict(ctx, tx, conflict); err != nil {
			return fmt.Errorf("update: %w", errors.Join(err, storage.ErrCASFailure))
		}
		if cut, tx = nil, nil; !retries {
			return errConflict
		}
	}
}

// keyVersion is a key with the version that a transaction has read, "" for none.
type keyVersion struct {
	key     key.Key
	version string
}

// conflictOf returns the key that another writer changed first, if a commit was refused for that reason.
func conflictOf(err error, keys []keyVersion) (keyVersion, bool) {
	var op *storage.OpError
	if !errors.As(err, &op) || errors.Is(err, storage.ErrInconsistent) || !errors.Is(op.Err, storage.ErrCASFailure) && !errors.Is(op.Err, storage.ErrWrongUid) {
		return keyVersion{}, false
	}
	return keys[op.Index], true
}

// awaitConflict waits until the copy has a change of the conflicting key. The conflict may be gone again before it reaches the copy; then a
// barrier ends the wait.
func (s *Store) awaitConflict(ctx context.Context, tx *Tx, conflict keyVersion) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if !s.copy.Bookmarks() {
		return s.copy.AwaitChange(waiting, tx.rows, conflict.key, conflict.version)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.copy.Barrier(waiting) == nil {
			cancel()
		}
	}()
	err := s.copy.AwaitChange(waiting, tx.rows, conflict.key, conflict.version)
	isCaughtUp := waiting.Err() != nil && ctx.Err() == nil
	cancel()
	<-done
	if isCaughtUp {
		return nil
	}
	return err
}

// verifyReads reports whether all reads of a transaction are still valid. If not, it also returns a state that is proven to be no older than the
// call, if the backend has bookmarks. A View would not do, because it shows local writes without earlier writes of others.
func (s *Store) verifyReads(ctx context.Context, tx *Tx) (bool, *replica.View[*entry], error) {
	if s.copy.Bookmarks() {
		if err := s.copy.Barrier(ctx); err != nil {
			return false, nil, err
		}
		now := &reading{store: s, rows: s.copy.Cut()}
		for i := range tx.touchedKeys {
			if t := &tx.touchedKeys[i]; versionOf(now.row(t.key)) != versionOf(t.stored) {
				return false, now.rows, nil
			}
		}
		return !tx.hasListed, now.rows, nil
	}
	tx.dropChanges() // the function may have failed after it made some
	ops, keys := tx.operations()
	if len(ops) == 0 {
		return true, nil, nil
	}
	if err := s.checkOpCount(len(ops)); err != nil {
		return false, nil, err
	}
	_, err := s.transactor.Commit(ctx, ops)
	if conflict, found := conflictOf(err, keys); found {
		return false, nil, s.copy.AwaitChange(ctx, tx.rows, conflict.key, conflict.version)
	}
	return err == nil, nil, err
}

// operations returns the operations of the transaction, and the expected version for each.
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
			// Build the id from the key: the program may have changed its own id meanwhile.
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
	for _, op := range tx.claimOperations() {
		ops = append(ops, op)
		if op.Write != nil {
			keys = append(keys, keyVersion{key.Of(op.Write.GetId()), op.Write.GetVersion()})
		} else {
			keys = append(keys, keyVersion{key.Of(op.Delete), op.Version})
		}
	}
	return ops, keys
}

// commit commits the operations of a transaction and makes the changes visible to readers in one step.
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
		// The copy was listed again meanwhile. Ignore the error: the commit has succeeded even if ctx ends here.
		_ = s.copy.Barrier(ctx)
	}
	return nil
}

// submit commits operations. It sends a single write outside a transaction, because a backend may batch it with other writes.
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

// entryOfWrite returns the entry of a written resource. It reuses the transaction's entry if decoding would produce the same object.
func (s *Store) entryOfWrite(c *change, res *resourcepb.Resource) *entry {
	if c == nil || c.result == nil || c.result.table == nil || c.result.table.setVersion == nil {
		return s.decode(res)
	}
	e := c.result
	e.version = res.GetVersion()
	e.table.setVersion(e.object, e.version)
	e.values = e.table.values(e.object) // an index may use the version
	e.digest = digestOf(e.table.encode, e.object)
	return e
}
