package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
)

func TestRetryRead(t *testing.T) {
	t.Parallel()
	compacted := fmt.Errorf("in the middle: %w", storage.ErrCompacted)
	calls := 0
	got, err := retryRead(t.Context(), func() (int, error) {
		if calls++; calls < 3 {
			return 0, compacted
		}
		return calls, nil
	})
	if got != 3 || err != nil {
		t.Errorf("got %d, %v after %d calls, want 3", got, err, calls)
	}

	ctx, cancel := context.WithCancel(t.Context())
	_, err = retryRead(ctx, func() (int, error) {
		cancel()
		return 0, compacted
	})
	if !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v, want ErrInconsistent and the context's error", err)
	}

	// A retry cannot help a cluster that went back.
	for _, permanent := range []error{errors.New("another error"), errWentBack} {
		calls := 0
		_, err := retryRead(t.Context(), func() (int, error) {
			if calls++; calls > 1 {
				return 0, errors.New("a second read")
			}
			return 0, permanent
		})
		if !errors.Is(err, permanent) {
			t.Errorf("got %v, want %v after one read", err, permanent)
		}
	}
}
