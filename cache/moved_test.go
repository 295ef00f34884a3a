package cache_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A strong read and a strong list of a store that has moved fail from the moment when the move is recorded, although the copy's watch ends
// later. They do not wait for the copy until their timeout. The test is not parallel: others look for goroutines that are left.
func TestStrongReadsOfAMovedStore(t *testing.T) {
	ctx := fixture.Context(t)
	for _, url := range []string{"mem://", "sqlite:" + t.TempDir() + "/store.db"} {
		b := fixture.Open(t, url)
		c := newCache(t, b, &cache.Options{Timeout: time.Hour})
		fixture.Write(t, c, fixture.Resource("a", "1"))
		expect(t, "a strong read", readData(t, c, strong, "a"), "1")
		m, _ := storage.As[driver.GuardedMover](b)
		move := func(fence *driver.Fence) {
			t.Helper()
			state, err := m.Fence(t.Context())
			if err == nil {
				_, err = m.SetFenceAt(t.Context(), fence, state.Epoch)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		move(&driver.Fence{Target: "mem://there"})
		expect(t, "a strong read of a closed store", readData(t, c, strong, "a"), "1")
		move(&driver.Fence{Target: "mem://there", Moved: true})
		if res, err := c.Read(ctx, strong, fixture.ID("a")); !errors.Is(err, storage.ErrMoved) {
			t.Errorf("a strong read returned %v, %v, expected a MovedError", res, err)
		}
		if all, err := c.List(ctx, strong, fixture.Type, fixture.Tenancy, ""); !errors.Is(err, storage.ErrMoved) {
			t.Errorf("a strong list returned %v, %v, expected a MovedError", all, err)
		}
		expect(t, "an eventual read", readData(t, c, eventual, "a"), "1")
	}
}
