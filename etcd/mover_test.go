//go:build integration

package etcd_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestLostAnswerOfFence loses the answers to a change of the fence, which is undone by somebody else before the handle hears
// about it: to make it once more would close, or open, the store behind their back.
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
			behind, _ := storage.As[driver.Mover](r.behind)
			if c.before != nil {
				if err := direct.SetFence(fixture.Context(t), c.before); err != nil {
					t.Fatal(err)
				}
			}
			is := func(want bool) func() bool {
				return func() bool {
					state, err := direct.Fence(fixture.Context(t))
					if err != nil {
						t.Fatal(err)
					}
					return state.Closed == want
				}
			}
			// What only the change says: a comparison (of the mod revision: field 6) of the epoch's key.
			got := r.lose(t, "\x00mepoch\x30", func() <-chan result {
				done := make(chan result, 1)
				go func() { done <- result{err: behind.SetFence(fixture.Context(t), c.change)} }()
				return done
			}, is(c.change != nil), func() {
				if err := direct.SetFence(fixture.Context(t), c.undo); err != nil {
					t.Fatal(err)
				}
			})
			if got.err != nil {
				t.Errorf("the change that was made: %v", got.err)
			}
			if !is(c.change == nil)() {
				t.Errorf("it was made once more, after somebody had undone it")
			}
		})
	}
}
