//go:build integration

package etcd_test

import (
	"context"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/handover"
	"github.com/ashlar-dev/storage/internal/handover/handovertest"
	"github.com/ashlar-dev/storage/internal/testenv"
)

func TestHandover(t *testing.T) {
	t.Parallel()
	handovertest.Run(t, func(t *testing.T) (one, other storage.Backend) {
		url := testenv.Etcd(t).StoreURL(t)
		return open(t, url), open(t, url)
	})
}

// TestLostAnswerOfFence loses the answers to a change of the fence, which is undone by somebody else before the handle hears
// about it: to make it once more would close, or open, the store behind their back.
func TestLostAnswerOfFence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, change, undo func(f handover.Fencer, ctx context.Context) error
		closed               bool // what the change makes of it
	}{
		"fence": {
			before: func(handover.Fencer, context.Context) error { return nil },
			change: func(f handover.Fencer, ctx context.Context) error { return f.Fence(ctx, "mem://lost") },
			undo:   handover.Fencer.Unfence,
			closed: true,
		},
		"unfence": {
			before: func(f handover.Fencer, ctx context.Context) error { return f.Fence(ctx, "mem://before") },
			change: handover.Fencer.Unfence,
			undo:   func(f handover.Fencer, ctx context.Context) error { return f.Fence(ctx, "mem://again") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			direct, _ := storage.As[handover.Fencer](r.direct)
			behind, _ := storage.As[handover.Fencer](r.behind)
			if err := c.before(direct, within(t)); err != nil {
				t.Fatal(err)
			}
			is := func(want bool) func() bool {
				return func() bool {
					_, closed, err := direct.Fenced(within(t))
					if err != nil {
						t.Fatal(err)
					}
					return closed == want
				}
			}
			// What only the change says: a comparison (of the mod revision: field 6) of the epoch's key.
			got := r.lose(t, "\x00mepoch\x30", func() <-chan result {
				done := make(chan result, 1)
				go func() { done <- result{err: c.change(behind, within(t))} }()
				return done
			}, is(c.closed), func() {
				if err := c.undo(direct, within(t)); err != nil {
					t.Fatal(err)
				}
			})
			if got.err != nil {
				t.Errorf("the change that was made: %v", got.err)
			}
			if !is(!c.closed)() {
				t.Errorf("it was made once more, after somebody had undone it")
			}
		})
	}
}
