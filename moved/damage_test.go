package moved_test

import (
	"context"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/moved"
	"github.com/ashlar-dev/storage/resourcepb"
)

type skipper interface {
	SkipDamage(of func(storage.UnversionedType) bool)
}

// observed is a store that reports which of its watches skip damaged resources.
type observed struct {
	storage.Backend
	name  string
	skips chan string
}

type observedWatch struct {
	storage.Watch
	of *observed
}

func (w observedWatch) SkipDamage(of func(storage.UnversionedType) bool) {
	w.Watch.(skipper).SkipDamage(of)
	w.of.skips <- w.of.name
}

func (o *observed) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := o.Backend.WatchList(ctx, typ, tenancy, prefix)
	return observedWatch{w, o}, err
}

func (o *observed) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix, cursor string) (storage.Watch, error) {
	resumer, _ := storage.As[storage.Resumer](o.Backend)
	w, err := resumer.WatchFrom(ctx, typ, tenancy, prefix, cursor)
	return observedWatch{w, o}, err
}

// A watch that skips damaged resources does so in the next store, too.
func TestSkipDamage(t *testing.T) {
	t.Parallel()
	urls := []string{memoryURL(t), memoryURL(t)}
	skips := make(chan string, 2)
	store := moved.New(&observed{fixture.Open(t, urls[0]), "old", skips}, func(context.Context, *storage.MovedError) (storage.Backend, error) {
		return &observed{fixture.Open(t, urls[1]), "new", skips}, nil
	})
	w := fixture.WatchAll(t, store)
	s, ok := w.(skipper)
	if !ok {
		t.Fatal("the watch cannot skip damaged resources")
	}
	s.SkipDamage(func(storage.UnversionedType) bool { return true })
	if got := <-skips; got != "old" {
		t.Errorf("the watch of the store %s skips, expected old", got)
	}
	to := fixture.Open(t, urls[1])
	o := &migrate.Options{From: "old", To: "new", Live: true, CutoverLag: time.Hour}
	if _, err := migrate.Run(fixture.Context(t), fixture.Open(t, urls[0]), to, o); err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, to, thing("a"))
	for fixture.Next(t, w).GetUpsert() == nil {
	}
	select {
	case got := <-skips:
		if got != "new" {
			t.Errorf("the watch of the store %s skips, expected new", got)
		}
	default:
		t.Error("the continued watch does not skip damaged resources")
	}
}
