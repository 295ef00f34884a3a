package migrations

import "testing"

// TestStepsKeepTheirText compares the steps with their recorded checksums. A store cannot be opened by a program with another text of a
// step that the store has: restore the text, and add a step with the change. Only a new step gets a new line here.
func TestStepsKeepTheirText(t *testing.T) {
	t.Parallel()
	checksums := []struct{ name, checksum string }{
		{"001_store.sql", "9727ce26ae4f122ee61505b509c4655fa7a199a4b41d2193e3b492383b19f12c"},
	}
	if len(steps) != len(checksums) {
		t.Fatalf("got %d steps, expected %d", len(steps), len(checksums))
	}
	for i, want := range checksums {
		if got := steps[i]; got.Name != want.name || got.checksum != want.checksum {
			t.Errorf("step %d is %s with the checksum %s, expected %s with %s", i+1, got.Name, got.checksum, want.name, want.checksum)
		}
	}
	for _, s := range steps[1:] {
		if s.Lock == locksOfNewTables {
			t.Errorf("%s has no headings about its locks and its duration, see newStep", s.Name)
		}
	}
}
