package migrations

import "testing"

// TestStepsKeepTheirText compares the steps with their recorded checksums. A store cannot be opened by a program with another text of a
// step that the store has: restore the text, and add a step with the change. Only a new step gets a new line here.
func TestStepsKeepTheirText(t *testing.T) {
	t.Parallel()
	checksums := []struct{ name, checksum string }{
		{"001_store.sql", "8013e601fe337d526bae8d22db23851cc480d989ad21085ab4f65483d353a25e"},
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
