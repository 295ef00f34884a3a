package sqlite_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/sqlite"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{
		URL: func(t testing.TB) string {
			return (&url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "store.db")}).String()
		},
		Backup: func(t testing.TB, b storage.Backend) func() storage.Backend {
			store, copied := b.(*sqlite.Backend), filepath.Join(t.TempDir(), "backup.db")
			if err := store.Backup(t.Context(), copied); err != nil {
				t.Fatal(err)
			}
			return func() storage.Backend {
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(copied, store.Path()); err != nil {
					t.Fatal(err)
				}
				again, err := sqlite.New(t.Context(), store.Path(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return again
			}
		},
	})
}
