package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage/internal/damagetest"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestDamage(t *testing.T) {
	t.Parallel()
	damagetest.Run(t, func(t *testing.T) damagetest.Harness {
		path := filepath.Join(t.TempDir(), "store.db")
		s := open(t, path, nil)
		return damagetest.Harness{Backend: s, Replace: func(t *testing.T, id *resourcepb.ID, data []byte) {
			db, err := sqlite3.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			k, d := sqlite3.Quote(key.Of(id).Bytes()), sqlite3.Quote(data)
			if err := db.Exec(`
				BEGIN IMMEDIATE;
				INSERT INTO log (seq, tag, at, key, data) SELECT max(seq) + 1, 4711, max(at), ` + k + `, ` + d + ` FROM log;
				UPDATE resources SET (seq, tag) = (SELECT max(seq), 4711 FROM log), data = ` + d + ` WHERE key = ` + k + `;
				COMMIT`); err != nil {
				t.Fatal(err)
			}
		}}
	})
}
