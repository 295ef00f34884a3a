package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
)

// A call that ran out of time is held against the database only where it was forgotten, not where everything was slow.
func TestStarved(t *testing.T) {
	forgotten := &call{
		kind: "write", begin: time.Second, returnTime: time.Second + longTimeout, timeout: longTimeout,
		parts: []part{{verb: write, key: "key", name: "mine"}},
		err:   fmt.Errorf("%w: %w", storage.ErrInconsistent, context.DeadlineExceeded),
	}
	for _, c := range []struct{ others, violations int }{{0, 0}, {19, 0}, {20, 1}, {100, 1}} {
		h := &roundLog{calls: []*call{forgotten}}
		for i := range c.others {
			at := 2*time.Second + time.Duration(i)*time.Millisecond
			h.calls = append(h.calls, &call{kind: "delete", begin: at, returnTime: at + time.Millisecond, end: at + time.Millisecond, timeout: longTimeout,
				outcome: outcomeDone, parts: []part{{verb: remove, key: "key"}}})
		}
		r := &run{clock: &clock{start: time.Now()}}
		e := collectEvidence(r, &round{roundLog: h, run: r, keys: []string{"key"}}, nil)
		if found := checkOutcomes(e); len(found) != c.violations {
			t.Errorf("overtaken by %d changes: %v, expected %d violations", c.others, found, c.violations)
		}
	}
}
