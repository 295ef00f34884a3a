package tables_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables"
)

// damagedStore is a backend whose last watch can be ended, and which then refuses snapshots.
type damagedStore struct {
	storage.Backend
	mu    sync.Mutex
	err   error // of new watches; nil for none
	watch storage.Watch
}

func (d *damagedStore) As(target any) bool {
	if target, ok := target.(*storage.Transactor); ok {
		*target, ok = storage.As[storage.Transactor](d.Backend)
		return ok
	}
	return false
}

func (d *damagedStore) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	w, err := d.Backend.WatchList(ctx, typ, tenancy, namePrefix)
	d.watch = w
	return w, err
}

// A store that cannot be listed because of a damaged resource reports it, and a blocked call names it. When the resource is repaired, the store
// recovers.
func TestDamageIsReported(t *testing.T) {
	t.Parallel()
	b := &damagedStore{Backend: fixture.Open(t, "mem://")}
	s, err := tables.Open(fixture.Context(t), b, numbers)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Err(); err != nil {
		t.Errorf("a store in service reports %v", err)
	}
	changed := s.ErrChanged()
	b.mu.Lock()
	b.err = &storage.DamagedError{ID: id("other"), Err: errors.New("garbage")}
	b.watch.Close()
	b.mu.Unlock()
	isDamage := func(err error) bool {
		damaged := (*storage.DamagedError)(nil)
		return errors.As(err, &damaged) && damaged.ID.GetName() == "other"
	}
	for !isDamage(s.Err()) { // the end of the watch is reported first
		<-changed
		changed = s.ErrChanged()
	}
	if got := s.Stats(); got.Live || got.Relists != 0 {
		t.Errorf("a store without a watch has %+v", got)
	}
	view := func(ctx context.Context) error {
		return s.View(ctx, func(*tables.View) error { return nil }, tables.Linearizable)
	}
	if err := view(fixture.CallTimeout(t.Context(), t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) || !isDamage(err) {
		t.Errorf("a linearizable View returned %v, expected the deadline and the damage", err)
	}
	b.mu.Lock()
	b.err = nil
	b.mu.Unlock()
	if err := view(fixture.Context(t)); err != nil || s.Err() != nil {
		t.Errorf("after the repair the View returned %v and the store reports %v", err, s.Err())
	}
	if got := s.Stats(); !got.Live || got.Relists != 1 {
		t.Errorf("after the repair the store has %+v, expected one relist", got)
	}
	changed = s.ErrChanged()
	s.Close()
	<-changed
	if err := s.Err(); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("a closed store reports %v, expected ErrClosed", err)
	}
}
