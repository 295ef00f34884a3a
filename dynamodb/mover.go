package dynamodb

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// notes stores the notes of a migration, one item each, and checks the guards of writes.
//
// A guarded write is a transaction with a condition on the note's revision. Two transactions with a condition on the same item
// conflict, so a note that serves as a guard has leaves with copies of its revision, and each write checks one leaf. A change of the
// note changes all leaves in the same transaction.
type notes struct {
	table  *table
	writes atomic.Uint32 // guarded writes, which use the leaves in turn

	raising     chan struct{} // a semaphore: one write raises the leaves for all
	raisedGuard atomic.Pointer[driver.Guard]
}

func newNotes(t *table) *notes { return &notes{table: t, raising: make(chan struct{}, 1)} }

// guardLeaves is the number of a guard's leaves. A transaction has at most 100 items.
const guardLeaves = 64

// ReadNote implements driver.Mover.
func (n *notes) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	it, err := n.table.get(ctx, true, n.table.note(name))
	return it.bytes(attrData), hex.EncodeToString(it.bytes(attrVersion)), err
}

// WriteNote implements driver.Mover. The random revision shows whether an attempt whose answer was lost has written the note.
func (n *notes) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	base, next := revisionBytes(revision), newRevision()
	it := n.noteItem(name, value, next)
	err := n.table.put(ctx, it, versionEqualsNoGuard(base))
	if conditionFailed(err) {
		err = n.changeLeaves(ctx, name, base, next, types.TransactWriteItem{Put: &types.Put{Item: markGuard(it)}})
	}
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(next), nil
}

// DeleteNote implements driver.Mover.
func (n *notes) DeleteNote(ctx context.Context, name, revision string) error {
	base := revisionBytes(revision)
	err := n.table.remove(ctx, n.table.note(name), versionEqualsNoGuard(base))
	if !conditionFailed(err) {
		return err
	}
	err = n.changeLeaves(ctx, name, base, nil, types.TransactWriteItem{Delete: &types.Delete{Key: n.table.note(name)}})
	if errors.Is(err, errNoNote) {
		return nil
	}
	return err
}

// Guards implements driver.GuardedMover.
func (*notes) Guards() {}

// guard returns the condition of a write that a guard holds. Once the condition has failed, it cannot hold again.
func (n *notes) guard(ctx context.Context, g *driver.Guard) (types.TransactWriteItem, error) {
	revision := revisionBytes(g.Revision)
	if err := n.raise(ctx, g, revision); err != nil {
		return types.TransactWriteItem{}, err
	}
	leaf := n.table.guardLeaf(g.Note, int(n.writes.Add(1)%guardLeaves))
	return n.table.check(leaf, versionEquals(revision)), nil
}

// raise ensures that the leaves have had the revision of a guard, before its first use by this handle.
func (n *notes) raise(ctx context.Context, g *driver.Guard, revision []byte) error {
	raised := func() bool { last := n.raisedGuard.Load(); return last != nil && *last == *g }
	if raised() {
		return nil
	}
	select {
	case n.raising <- struct{}{}:
	case <-ctx.Done():
		return request.Inconsistent(ctx, nil)
	}
	defer func() { <-n.raising }()
	if raised() {
		return nil
	}
	err := n.raiseLeaves(ctx, g, revision)
	if err == nil {
		n.raisedGuard.Store(new(*g))
	}
	return err
}

func (n *notes) raiseLeaves(ctx context.Context, g *driver.Guard, revision []byte) error {
	it, err := n.table.get(ctx, true, n.table.note(g.Note))
	switch {
	case err != nil:
		return err
	case revision == nil || !bytes.Equal(it.bytes(attrVersion), revision):
		return g.Superseded()
	case it[attrGuard] != nil:
		return nil
	}
	it = markGuard(n.noteItem(g.Note, it.bytes(attrData), revision))
	err = n.transactLeaves(ctx, g.Note, revision, revision, types.TransactWriteItem{Put: &types.Put{Item: it}})
	if errors.Is(err, errCondition) {
		return g.Superseded()
	}
	return err
}

// errNoNote means that a note to be changed does not exist. It matches storage.ErrCASFailure.
var errNoNote = driver.Conflict("(absent)")

// changeLeaves changes a note, and all leaves with it, if the note has the revision base and serves as a guard.
func (n *notes) changeLeaves(ctx context.Context, name string, base, next []byte, change types.TransactWriteItem) error {
	it, err := n.table.get(ctx, true, n.table.note(name))
	switch {
	case err != nil:
		return err
	case next != nil && bytes.Equal(it.bytes(attrVersion), next):
		return nil // by an attempt whose answer was lost
	case it == nil:
		return errNoNote
	case base == nil || !bytes.Equal(it.bytes(attrVersion), base):
		return driver.Conflict(name)
	}
	if err = n.transactLeaves(ctx, name, base, next, change); !errors.Is(err, errCondition) {
		return err
	}
	it, err = n.table.get(ctx, true, n.table.note(name))
	if err == nil && !bytes.Equal(it.bytes(attrVersion), next) { // not by an attempt whose answer was lost
		err = driver.Conflict(name)
	}
	return err
}

// transactLeaves changes a note of the revision base and gives its leaves the revision next; nil deletes them.
func (n *notes) transactLeaves(ctx context.Context, name string, base, next []byte, change types.TransactWriteItem) error {
	items := append([]types.TransactWriteItem{n.table.on(change, versionEquals(base))}, n.leafChanges(name, next)...)
	_, err := n.table.transact(ctx, items...)
	return err
}

// leafChanges returns the operations that give the leaves of a note a revision; nil deletes them.
func (n *notes) leafChanges(name string, next []byte) (items []types.TransactWriteItem) {
	for i := range guardLeaves {
		leaf := n.table.guardLeaf(name, i)
		if next == nil {
			items = append(items, types.TransactWriteItem{Delete: &types.Delete{TableName: &n.table.name, Key: leaf}})
			continue
		}
		leaf[attrVersion] = binaryValue(next)
		items = append(items, types.TransactWriteItem{Put: &types.Put{TableName: &n.table.name, Item: leaf}})
	}
	return items
}

// revocation returns the operations that change the revision of a note, so that no guard on its present revision holds any more.
func (n *notes) revocation(ctx context.Context, name string) ([]types.TransactWriteItem, error) {
	it, err := n.table.get(ctx, true, n.table.note(name))
	switch {
	case err != nil:
		return nil, err
	case it == nil:
		return []types.TransactWriteItem{n.table.check(n.table.note(name), absent)}, nil
	}
	next, base := newRevision(), it.bytes(attrVersion)
	put := markGuard(n.noteItem(name, it.bytes(attrData), next))
	return append([]types.TransactWriteItem{n.table.on(types.TransactWriteItem{Put: &types.Put{Item: put}}, versionEquals(base))},
		n.leafChanges(name, next)...), nil
}

func (n *notes) noteItem(name string, value, revision []byte) item {
	it := n.table.note(name)
	it[attrData], it[attrVersion] = binaryValue(append([]byte{}, value...)), binaryValue(revision)
	return it
}

// markGuard marks a note that serves as a guard.
func markGuard(note item) item {
	note[attrGuard] = binaryValue([]byte{1})
	return note
}

// versionEqualsNoGuard returns the condition that a note has a revision, or does not exist if base is nil, and does not serve as a guard.
func versionEqualsNoGuard(base []byte) condition {
	if base == nil {
		return absent
	}
	on := versionEquals(base)
	on.text += " AND attribute_not_exists(" + attrGuard + ")"
	return on
}

// atRevision returns the condition that a note has a revision, or does not exist.
func atRevision(revision string) condition {
	if base := revisionBytes(revision); base != nil {
		return versionEquals(base)
	}
	return absent
}

func newRevision() []byte {
	revision := make([]byte, 16)
	_, _ = rand.Read(revision) // never fails
	return revision
}

// revisionBytes returns the stored form of a revision: nil for no note, and a revision that no note has for a malformed one.
func revisionBytes(revision string) []byte {
	if revision == "" {
		return nil
	}
	b, err := hex.DecodeString(revision)
	if err != nil || len(b) == 0 {
		return []byte{0}
	}
	return b
}
