package postgres

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
)

// Of a change whose key cannot be read nobody knows which watches want it: it ends them all, and who lists again goes on.
func TestChangeOfUnreadableKey(t *testing.T) {
	t.Parallel()
	_, err := eventsOf([]change{{at: position{revision: 7}, kind: kindWrite, key: []byte("a\x00b")}})
	if !errors.Is(err, errDamaged) || !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("got %v, expected errDamaged with ErrCompacted", err)
	}
}
