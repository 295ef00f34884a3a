//go:build integration

package etcd_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// The answer to a change of the fence is lost, and another handle undoes the change. A blind retry would apply the change again.
func TestLostAnswerOfFence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, change, undo *string }{
		"fence":   {change: new("mem://lost")},
		"unfence": {before: new("mem://before"), undo: new("mem://again")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			direct, _ := storage.As[driver.Mover](r.direct)
			behind, _ := storage.As[driver.Mover](r.proxied)
			if c.before != nil {
				if err := direct.SetFence(fixture.Context(t), c.before); err != nil {
					t.Fatal(err)
				}
			}
			closed := func(want bool) func() bool {
				return func() bool {
					state, err := direct.Fence(fixture.Context(t))
					if err != nil {
						t.Fatal(err)
					}
					return state.Closed == want
				}
			}
			// Only the change compares the mod revision (field 6) of the epoch's key.
			got := r.loseAnswer(t, "\x00mepoch\x30", func() <-chan result {
				done := make(chan result, 1)
				go func() { done <- result{err: behind.SetFence(fixture.Context(t), c.change)} }()
				return done
			}, closed(c.change != nil), func() {
				if err := direct.SetFence(fixture.Context(t), c.undo); err != nil {
					t.Fatal(err)
				}
			})
			if got.err != nil {
				t.Errorf("the applied change: %v", got.err)
			}
			if !closed(c.change == nil)() {
				t.Errorf("the change was applied again after it was undone")
			}
		})
	}
}
