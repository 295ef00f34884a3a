package top

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// failingBackend is a backend whose watches the test can end.
type failingBackend struct {
	storage.Backend
	mu  sync.Mutex
	w   storage.Watch
	err error // of the next WatchList
}

func (b *failingBackend) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return nil, b.err
	}
	var err error
	b.w, err = b.Backend.WatchList(ctx, typ, tenancy, prefix)
	return b.w, err
}

func (b *failingBackend) set(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	b.w.Close()
}

func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &failingBackend{Backend: inmem.New(nil)}
		write := func(name string) {
			res := resource("Album", name, 10)
			_, err := b.WriteCAS(t.Context(), res)
			require.NoError(t, err)
		}
		write("first")
		tally := NewTally(time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		all := storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
		everywhere := &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
		go func() { done <- Follow(ctx, b, all, everywhere, "", tally) }()
		synctest.Wait()
		write("second")
		synctest.Wait()
		p := tally.Picture(time.Now())
		require.True(t, p.Complete)
		require.True(t, p.LagKnown)
		require.Equal(t, 2, p.Total.Resources)
		require.Len(t, p.Changes, 1)

		b.set(errors.New("no way to the database"))
		synctest.Wait()
		write("third")
		<-time.After(10 * time.Second)
		p = tally.Picture(time.Now())
		require.False(t, p.Complete)
		require.Equal(t, "counting anew: no way to the database", p.Note)
		b.set(nil)
		<-time.After(2 * time.Second)
		synctest.Wait()
		p = tally.Picture(time.Now())
		require.True(t, p.Complete)
		require.Empty(t, p.Note)
		require.Equal(t, 3, p.Total.Resources)

		cancel()
		require.NoError(t, <-done)
		require.NoError(t, b.Close())
	})
}

func TestFollowFailsAtOnce(t *testing.T) {
	t.Parallel()
	b := &failingBackend{Backend: inmem.New(nil), err: errors.New("no way to the database")}
	defer b.Close()
	err := Follow(t.Context(), b, storage.UnversionedType{Group: "*", Kind: "*"}, &resourcepb.Tenancy{}, "", NewTally(noon))
	require.ErrorContains(t, err, "no way to the database")
}
