package sqlite_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/torture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/sqlite"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{
		URL: func(t testing.TB) string {
			return (&url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "store.db")}).String()
		},
		Processes: true,
		Faults: func(_ testing.TB, storeURL string) []faults.Fault {
			return []faults.Fault{torture.Compact(func(ctx context.Context) error { return moveHorizon(ctx, storeURL) })}
		},
		Replace: func(t testing.TB, storeURL string, id *resourcepb.ID, data []byte) {
			u, err := url.Parse(storeURL)
			if err != nil {
				t.Fatal(err)
			}
			db, err := sqlite3.Open(u.Path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			k, d := sqlite3.Quote(key.Of(id).Bytes()), sqlite3.Quote(data)
			if err := db.Exec(`
				BEGIN IMMEDIATE;
				INSERT INTO log (seq, tag, written, key, data) SELECT max(seq) + 1, 4711, max(written), ` + k + `, ` + d + ` FROM log;
				UPDATE resources SET (seq, tag) = (SELECT max(seq), 4711 FROM log), data = ` + d + ` WHERE key = ` + k + `;
				COMMIT`); err != nil {
				t.Fatal(err)
			}
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
