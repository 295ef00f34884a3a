package reaper_test

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/service/reaper"
)

// A reaper ends when its store is closed, whether or not its context is done.
func TestClosedStoreEndsReaper(t *testing.T) {
	f := newForest(t)
	ended := make(chan error, 1)
	go func() { ended <- reaper.New(f.server, nil).Run(f.ctx) }()
	f.delete(f.write("owner", nil, nil))
	if err := f.backend.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, storage.ErrClosed) {
			t.Errorf("the reaper ended with %v", err)
		}
	case <-f.ctx.Done():
		t.Error("the reaper does not end")
	}
}
