package sqlite

import "testing"

// While a run waits for the file, what waits for the run is bounded, although a deletion comes without bytes of a resource, and a
// write with few.
func TestInboxIsBounded(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string][]row{"deletions": nil, "small writes": {{data: []byte{1}}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := &inbox{signal: make(chan struct{}, 1)}
			const n = 200_000
			most := 0
			for seq := range int64(n) {
				in.add([]committedBatch{{after: position{seq, 1}, end: position{seq + 1, 1}, rows: rows}})
				most = max(most, len(in.localCommits))
			}
			if most == n {
				t.Errorf("all of %d additions are kept", n)
			}
			if _, look := in.drain(); !look {
				t.Error("the file is not looked into for what was dropped")
			}
		})
	}
}
