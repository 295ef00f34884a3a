package postgres

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
)

// If the key of a change cannot be decoded, the affected watches are unknown. The change ends all watches, and a new list
// continues.
func TestChangeOfUnreadableKey(t *testing.T) {
	t.Parallel()
	_, err := eventsOf([]change{{at: position{revision: 7}, kind: kindWrite, key: []byte("a\x00b")}})
	if !errors.Is(err, errDamaged) || !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("got %v, expected errDamaged with ErrCompacted", err)
	}
}
