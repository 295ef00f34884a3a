package sqlite

import (
	"context"
	"errors"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Of a row of the log whose key cannot be read nobody knows which watches want it: it ends them all, at once, and who lists again
// goes on.
func TestUnreadableKeyInLog(t *testing.T) {
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
