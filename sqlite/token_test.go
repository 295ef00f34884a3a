package sqlite

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A continue token from after a backup is refused once the backup is restored, even after as many new changes.
func TestTokenAfterRestore(t *testing.T) {
	t.Parallel()
	path, older := newPath(t), newPath(t)
	s, err := New(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		fixture.Write(t, s, resource(fmt.Sprint("a-", i), 0))
	}
	early := page(t, s, 1, "").Continue
	if err := s.Backup(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, s, resource("b", 0))
	late := page(t, s, 1, "").Continue
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, rest := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + rest); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.Rename(older, path); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, nil)
	for i := range 3 {
		_, err := s.ListPage(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{Continue: late})
		if !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("the token from after the backup, after %d new changes: got error %v, expected ErrCompacted", i, err)
		}
		fixture.Write(t, s, resource(fmt.Sprint("c-", i), 0))
	}
	if rest := page(t, s, 10, early); fmt.Sprint(namesOf(rest.Resources)) != "[a-1 a-2]" {
		t.Errorf("the token from before the backup: got %v, expected [a-1 a-2]", namesOf(rest.Resources))
	}
}
