package expiry_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage/expiry"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/moved"
	"github.com/ashlar-dev/storage/resourcepb"
)

// An Expirer of a program that follows its store to another one deletes the copied resources there. Their versions are new, and the watch does not
// return them.
func TestStoreMoves(t *testing.T) {
	t.Parallel()
	urls := []string{"mem://" + rand.Text(), "mem://" + rand.Text()}
	from, to := fixture.Open(t, urls[0]), fixture.Open(t, urls[1])
	store := moved.New(fixture.Open(t, urls[0]), moved.Among(urls...))
	defer store.Close()
	res := fixture.Resource("a", "")
	res.Ttl = durationpb.New(100 * time.Millisecond)
	fixture.Write(t, store, res)
	ctx, stop := context.WithCancel(fixture.Context(t))
	hasMoved := make(chan struct{})
	e := expiry.New(store, &expiry.Options{Logger: slog.New(slog.DiscardHandler), Delete: func(ctx context.Context, id *resourcepb.ID, version string) error {
		select {
		case <-hasMoved:
		case <-ctx.Done():
		}
		return store.DeleteCAS(ctx, id, version)
	}})
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	fixture.Eventually(t, "the Expirer to observe the resource", func() bool { return e.Stats().Pending == 1 })
	o := &migrate.Options{From: migrate.Name(urls[0]), To: migrate.Name(urls[1]), Live: true, CutoverLag: 10 * time.Second}
	if _, err := migrate.Run(ctx, from, to, o); err != nil {
		t.Fatal(err)
	}
	close(hasMoved)
	fixture.Eventually(t, "the resource to be deleted in the next store", func() bool { return fixture.Stored(t, to, res.Id) == nil })
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
}
