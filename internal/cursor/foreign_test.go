package cursor

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
)

// A continue token of another store is ErrCompacted, also if the two stores read their pages in different ways: a program that follows its store to
// another database lists again.
func TestTokenOfAnotherKindOfStore(t *testing.T) {
	t.Parallel()
	one, two := StoreID{1}, StoreID{2}
	for _, kinds := range [][2]Kind{{Page, Revision}, {Revision, Page}, {Page, Page}, {Revision, Revision}} {
		if _, err := Decode(kinds[1], two, Encode(kinds[0], one, []byte("rest"))); !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("a token of the kind %c, read as %c: %v, expected ErrCompacted", kinds[0], kinds[1], err)
		}
		if kinds[0] == kinds[1] {
			continue
		}
		if _, err := Decode(kinds[1], one, Encode(kinds[0], one, []byte("rest"))); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a token of the kind %c of the same store, read as %c: %v, expected ErrInvalid", kinds[0], kinds[1], err)
		}
	}
}
