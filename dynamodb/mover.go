package dynamodb

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"github.com/ashlar-dev/storage/driver"
)

// notes stores the notes of a migration, one item each.
type notes struct{ table *table }

// ReadNote implements driver.Mover.
func (n *notes) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	it, err := n.table.get(ctx, true, n.table.note(name))
	return it.bytes(attrData), hex.EncodeToString(it.bytes(attrVersion)), err
}

// WriteNote implements driver.Mover. A repetition after a lost answer may conflict with the first attempt; the caller then reads
// the note.
func (n *notes) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	next := make([]byte, 16)
	_, _ = rand.Read(next) // never fails
	it := n.table.note(name)
	it[attrData], it[attrVersion] = binaryValue(append([]byte{}, value...)), binaryValue(next)
	err := n.table.put(ctx, it, atRevision(revision))
	switch {
	case conditionFailed(err):
		return "", driver.Conflict(name)
	case err != nil:
		return "", err
	}
	return hex.EncodeToString(next), nil
}

// DeleteNote implements driver.Mover.
func (n *notes) DeleteNote(ctx context.Context, name, revision string) error {
	on := condition{}
	if revision != "" {
		on = atRevision(revision)
	}
	err := n.table.remove(ctx, n.table.note(name), on)
	if conditionFailed(err) {
		if _, now, err := n.ReadNote(ctx, name); err != nil || now == "" {
			return err // it was deleted
		}
		return driver.Conflict(name)
	}
	return err
}

// atRevision returns the condition that a note has a revision, or does not exist.
func atRevision(revision string) condition {
	if revision == "" {
		return absent
	}
	b, err := hex.DecodeString(revision)
	if err != nil || len(b) == 0 {
		b = []byte{0} // no note has it
	}
	return versionEquals(b)
}
