package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/damage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestDamage(t *testing.T) {
	t.Parallel()
	damage.Run(t, func(t *testing.T) damage.Harness {
		path := filepath.Join(t.TempDir(), "store.db")
		s := open(t, path, nil)
		return damage.Harness{Backend: s, Replace: func(t *testing.T, id *resourcepb.ID, data []byte) {
			db, err := sqlite3.Open(path)
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
		}}
	})
}

// Of a row of the log whose key cannot be read nobody knows which watches want it: it ends them all, at once, and who lists again
// goes on.
func TestUnreadableKeyInTheLog(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, nil)
	fixture.Write(t, s, resource("a", 1))
	w := fixture.WatchChanges(t, s)
	cursor := w.Cursor()
	db, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Exec("INSERT INTO log (seq, tag, written, key, data) SELECT max(seq) + 1, 4711, max(written), x'6100', x'00' FROM log"); err != nil {
		t.Fatal(err)
	}
	resumed, err := s.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Timeout)
	defer cancel()
	for name, w := range map[string]storage.Watch{"open": w, "resumed": resumed} {
		if ev, err := w.Next(ctx); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("the watch that was %s: %v, %v; expected ErrWatchClosed with ErrCompacted", name, ev, err)
		}
	}
	fresh := fixture.WatchChanges(t, s)
	wantUpsert(t, fresh, fixture.Write(t, s, resource("b", 2)))
}
