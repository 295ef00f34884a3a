package reaper

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// unwatchable is a backend without watches. It records when they are opened. The eleventh fails after a time longer than maxPause.
type unwatchable struct {
	storage.Backend
	opened []time.Time
}

func (u *unwatchable) WatchList(context.Context, storage.UnversionedType, *resourcepb.Tenancy, string) (storage.Watch, error) {
	u.opened = append(u.opened, time.Now())
	if len(u.opened) == 11 {
		time.Sleep(2 * maxPause)
	}
	return nil, errors.New("no watches")
}

// A reaper opens the watch of tombstones again and again, with pauses that double up to a maximum and begin anew after a watch that lasted.
func TestWatchIsReopened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &unwatchable{Backend: inmem.New(nil)}
		defer b.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- New(service.New(b, registry.NewOpen(registry.Type{}), nil), nil).Run(ctx) }()
		time.Sleep(time.Hour)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the reaper ended with %v", err)
		}
		var pauses []time.Duration
		for i := range 13 {
			pauses = append(pauses, b.opened[i+1].Sub(b.opened[i]))
		}
		want := []time.Duration{
			minPause, 2 * minPause, 4 * minPause, 8 * minPause, 16 * minPause, 32 * minPause, 64 * minPause, 128 * minPause, maxPause, maxPause,
			2*maxPause + minPause, 2 * minPause, 4 * minPause,
		}
		if !slices.Equal(pauses, want) {
			t.Errorf("the pauses are %v, expected %v", pauses, want)
		}
	})
}

// The tombstone of an owner without children is deleted when the settling time has passed, and not before.
func TestTombstoneSettles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inmem.New(nil)
		defer b.Close()
		server := service.New(b, registry.NewOpen(registry.Type{}), nil)
		typ := &resourcepb.Type{Group: "tree", GroupVersion: "v1", Kind: "Node"}
		written, err := server.Write(t.Context(), &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: &resourcepb.ID{Type: typ, Name: "a"}}})
		if err == nil {
			_, err = server.Delete(t.Context(), &resourcepb.DeleteRequest{Id: written.GetResource().GetId()})
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- New(server, &Options{Settle: 10 * time.Minute}).Run(ctx) }()
		for _, want := range []int{1, 0} {
			time.Sleep(6 * time.Minute)
			synctest.Wait()
			stones, err := b.List(t.Context(), storage.StrongConsistency, storage.UnversionedTypeFrom(service.TombstoneType), written.GetResource().GetId().GetTenancy(), "")
			if err != nil || len(stones) != want {
				t.Errorf("there are %d tombstones (%v), expected %d", len(stones), err, want)
			}
		}
		cancel()
		<-ended
	})
}

// Options of zero have defaults, and others are kept.
func TestDefaultOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []*Options{nil, {}, {Settle: -1, Workers: -1}} {
		if r := New(nil, o); r.opts.Settle != defaultSettle || r.opts.Workers != defaultWorkers || r.opts.Logger == nil {
			t.Errorf("%v: the options are %v", o, r.opts)
		}
	}
	if r := New(nil, &Options{Settle: 1, Workers: 1}); r.opts.Settle != 1 || r.opts.Workers != 1 {
		t.Errorf("the options are %v, expected 1 and 1", r.opts)
	}
}
