package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
)

// TestUnsettled ends a call between two attempts. Its outcome is unknown only if the answer to one of them was lost.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	for _, err := range []error{storage.ErrClosed, context.Canceled, fmt.Errorf("wrapped: %w", context.DeadlineExceeded), storage.ErrCASFailure} {
		if got := unresolvedError([]*mutation{{}}, err); !errors.Is(got, err) || errors.Is(got, storage.ErrInconsistent) {
			t.Errorf("%v, nothing lost: %v", err, got)
		}
		got := unresolvedError([]*mutation{{lostAttempts: []*attempt{{}}}}, err)
		if !errors.Is(got, err) || errors.Is(got, storage.ErrInconsistent) != !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("%v, an answer lost: %v", err, got)
		}
	}
	if err := unresolvedError([]*mutation{{lostAttempts: []*attempt{{}}}}, nil); err != nil {
		t.Errorf("a success: %v", err)
	}
}
