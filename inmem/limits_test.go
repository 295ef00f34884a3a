package inmem

import (
	"testing"
	"testing/synctest"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A writer that waits for space in history continues when another handle opens the store with larger bounds, although no
// reader advances.
func TestLargerHistoryWakesWriters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.limitHistory(1, 0)
		s.history.addReader(s.at)
		for range 2 {
			s.put(key.Key{Name: "a"}, &resourcepb.Resource{}, 1) // the reader does not take these changes
		}
		ended := make(chan error, 1)
		go func() {
			err := s.lockForWriting(t.Context())
			if err == nil {
				s.mu.Unlock()
			}
			ended <- err
		}()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("the writer did not wait: %v", err)
		default:
		}
		s.limitHistory(10, 0)
		synctest.Wait()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		default:
			s.mu.Lock()
			s.history.spaceCond.Broadcast() // ends the test
			s.mu.Unlock()
			t.Error("the writer still waits")
		}
	})
}
