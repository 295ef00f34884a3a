package migrations

import "testing"

// TestStepsKeepTheirText compares the steps with their recorded checksums. A store cannot be opened by a program with another text of a
// step that the store has: restore the text, and add a step with the change. Only a new step gets a new line here.
func TestStepsKeepTheirText(t *testing.T) {
	t.Parallel()
	checksums := []struct{ name, checksum string }{
		{"001_store.sql", "f73c218711dfe22fca998fe0294e326613b2fe56ce2f20d8c9273e43138a139f"},
	}
	if len(steps) != len(checksums) {
		t.Fatalf("got %d steps, expected %d", len(steps), len(checksums))
	}
	for i, want := range checksums {
		if got := steps[i]; got.name != want.name || got.checksum != want.checksum {
			t.Errorf("step %d is %s with the checksum %s, expected %s with %s", i+1, got.name, got.checksum, want.name, want.checksum)
		}
	}
}
