package bboltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	bolt "go.etcd.io/bbolt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// Apply implements driver.Driver.
func (s *store) Apply(ctx context.Context, mutations []driver.Mutation) error {
	select {
	case s.writer <- struct{}{}:
		defer func() { <-s.writer }()
	case <-s.closed.Done():
		return storage.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	tx, err := s.db.Begin(true)
	if err != nil {
		return ended(err)
	}
	defer func() { _ = tx.Rollback() }() // has no effect after Commit
	t := txn{Tx: tx}
	changes, err := t.decide(mutations)
	if err != nil || len(changes) == 0 {
		return err
	}
	var commit uint64
	if last := len(changes) - 1; last > 0 {
		commit = changes[last].number
	}
	for i := range changes {
		t.carryOut(&changes[i], commit)
	}
	if t.trim(s.history); t.err != nil {
		return t.err
	}
	err = tx.Commit()
	s.wakeReaders()
	if err != nil { // the page that makes it visible may have been written before a failed flush
		return fmt.Errorf("%w: commit: %w", storage.ErrInconsistent, err)
	}
	return nil
}

// txn is a write transaction that keeps its first error.
type txn struct {
	*bolt.Tx
	err error
}

// change is a mutation with an effect.
type change struct {
	*driver.Mutation
	key    []byte
	row    []byte // the stored row
	child  []byte // the row's key in the bucket of children
	number uint64
}

// decide returns the changes of the mutations. The mutations have different keys, so none depends on another.
func (t *txn) decide(mutations []driver.Mutation) (changes []change, err error) {
	number := newest(t.Tx)
	for i := range mutations {
		c := change{Mutation: &mutations[i], key: mutations[i].Key.Bytes()}
		var found driver.Stored
		if c.row = t.Bucket(resourcesBucket).Get(c.key); c.row != nil {
			version, _, _ := bytes.Cut(c.row, []byte{0})
			res, err := decodeRow(c.Key, c.row)
			found = driver.Stored{Exists: true, Uid: res.GetId().GetUid(), Version: string(version)}
			if err != nil { // the stored resource is damaged; a caller with its version may replace it
				found.Uid = c.Uid
			}
			c.child = childKey(res)
		}
		changesIt, err := c.Decide(found)
		if err != nil {
			return nil, &storage.OpError{Index: i, Err: err}
		}
		if changesIt {
			number = after(number)
			c.number = number
			changes = append(changes, c)
		}
	}
	return changes, nil
}

// carryOut applies a change to all buckets. commit is the number of the last change of the transaction, or 0 if this is the only
// one.
func (t *txn) carryOut(c *change, commit uint64) {
	kind, row := byte(deleted), c.row
	t.delete(childrenBucket, c.child)
	t.delete(resourcesBucket, c.key)
	if c.Verb == driver.Write {
		data, err := driver.Encode(c.Resource)
		t.err = errors.Join(t.err, err)
		// No write had this version, and none will have it, in any copy of the file.
		c.NewVersion = fmt.Sprintf("%x-%016x", c.number, rand.Uint64())
		kind, row = written, encodeRow(c.NewVersion, data)
		t.put(resourcesBucket, c.key, row)
		t.put(childrenBucket, childKey(c.Resource), nil)
	}
	t.log(append(encodeNumber(c.number), c.key...), append(binary.BigEndian.AppendUint64([]byte{kind}, commit), row...))
}

// put and delete ignore a nil key: a resource without an owner is no child.

func (t *txn) put(bucket, key, value []byte) {
	if t.err == nil && key != nil {
		t.err = t.Bucket(bucket).Put(key, value)
	}
}

func (t *txn) delete(bucket, key []byte) {
	if t.err == nil && key != nil {
		t.err = t.Bucket(bucket).Delete(key)
	}
}

// log adds a row to the log. The bucket's sequence counts the rows.
func (t *txn) log(k, row []byte) {
	t.put(logBucket, k, row)
	if b := t.Bucket(logBucket); t.err == nil {
		t.err = b.SetSequence(b.Sequence() + 1)
	}
}

// trim removes the oldest rows of the log, except for the newest changes and the row before them, after which history begins.
func (t *txn) trim(keep int) {
	b := t.Bucket(logBucket)
	rows := b.Sequence()
	for ; rows > uint64(keep)+1; rows-- {
		oldest, _ := b.Cursor().First()
		t.delete(logBucket, oldest)
	}
	if t.err == nil {
		t.err = b.SetSequence(rows)
	}
}
