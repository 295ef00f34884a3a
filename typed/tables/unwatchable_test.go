package tables_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables"
)

// unwatchable is a backend whose watches can be disabled: open watches then end, and new ones fail.
type unwatchable struct {
	storage.Backend
	disabled     atomic.Bool
	openFailed   chan struct{} // receives when opening a watch has failed
	writeRefused chan struct{} // receives when a write was refused
}

func (b *unwatchable) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	stored, err := b.Backend.WriteCAS(ctx, res)
	if errors.Is(err, storage.ErrCASFailure) {
		b.writeRefused <- struct{}{}
	}
	return stored, err
}

func (b *unwatchable) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor, ok = storage.As[storage.Transactor](b.Backend)
	}
	return ok
}

func (b *unwatchable) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	if b.disabled.Load() {
		select {
		case b.openFailed <- struct{}{}:
		default:
		}
		return nil, storage.ErrInconsistent
	}
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	if err != nil {
		return nil, err
	}
	return &unwatchableWatch{Watch: w, Bookmarker: w.(storage.Bookmarker), b: b}, nil
}

type unwatchableWatch struct {
	storage.Watch
	storage.Bookmarker
	b *unwatchable
}

func (w *unwatchableWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	ev, err := w.Watch.Next(ctx)
	if w.b.disabled.Load() {
		return nil, storage.ErrWatchClosed
	}
	return ev, err
}

// Without a watch, an Update with a conflict blocks until its context ends, until there is a watch again, or
// until the store is closed. At the end of the context, its error matches both the context's and
// ErrCASFailure. A Linearizable View also blocks.
func TestUpdateWaitsWithoutWatch(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		outside := fixture.Open(t, url)
		b := &unwatchable{Backend: fixture.Open(t, url), openFailed: make(chan struct{}, 1), writeRefused: make(chan struct{}, 10)}
		s, err := tables.Open(ctx, b, numbers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		create(ctx, t, s, map[string]int64{"a": 1})
		behind := func(value int64) { // disables the watch and then changes the object
			t.Helper()
			b.disabled.Store(true)
			res := fixture.Stored(t, outside, id("a"))
			if res.Data, err = anypb.New(wrapperspb.Int64(value)); err != nil {
				t.Fatal(err)
			}
			fixture.Write(t, outside, res)
			<-b.openFailed
		}
		increase := func(ctx context.Context) error {
			return s.Update(ctx, func(tx *tables.Tx) error {
				o, err := numbers.Edit(tx, id("a"))
				if err != nil {
					return err
				}
				o.Data.Value++
				return numbers.Put(tx, o)
			})
		}
		behind(10)
		cancelled, cancel := context.WithCancel(ctx)
		waiting := make(chan error, 1)
		go func() { waiting <- increase(cancelled) }()
		<-b.writeRefused
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) || !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("after the end of the context: %v", err)
		}
		go func() { waiting <- increase(ctx) }()
		<-b.writeRefused
		b.disabled.Store(false)
		if err := <-waiting; err != nil {
			t.Error(err)
		}
		if err := s.View(ctx, func(v *tables.View) error {
			if names := listNames(t, v, byValue.Is(11)); names != "a" {
				t.Errorf("%q is 11", names)
			}
			return nil
		}, tables.Linearizable); err != nil {
			t.Fatal(err)
		}
		behind(20)
		go func() { waiting <- increase(ctx) }()
		viewing := make(chan error, 1)
		go func() { viewing <- s.View(ctx, func(*tables.View) error { return nil }, tables.Linearizable) }()
		<-b.writeRefused
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, ended := range []chan error{waiting, viewing} {
			if err := <-ended; !errors.Is(err, storage.ErrClosed) {
				t.Errorf("after Close: %v, expected ErrClosed", err)
			}
		}
	})
}
