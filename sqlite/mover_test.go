package sqlite

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/mover"
)

func TestMover(t *testing.T) {
	t.Parallel()
	mover.Run(t, mover.Harness{
		Open: func(t *testing.T) (one, other storage.Backend) {
			path := filepath.Join(t.TempDir(), "store.db")
			handle := func() storage.Backend {
				s, err := New(context.Background(), path, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				})
				return s
			}
			return handle(), handle()
		},
		NoLoader: "a transaction costs no round trip",
	})
}
