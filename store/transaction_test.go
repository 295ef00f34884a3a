package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/store"
)

// exists reports whether there is an object.
func exists(t *testing.T, r store.Reader, name string) bool {
	t.Helper()
	_, err := numbers.Get(r, id(name))
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// A program may use one id again and again. What it found absent under the first name conflicts with what is created there.
func TestAnIDThatIsUsedAgain(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s, other := open(t, url, numbers), open(t, url, numbers)
		tries := 0
		update(ctx, t, s, func(tx *store.Tx) error {
			found, one := 0, id("")
			for _, name := range []string{"a", "b"} {
				one.Name = name
				if _, err := numbers.Get(tx, one); err == nil {
					found++
				}
			}
			if tries++; tries == 1 {
				create(ctx, t, other, map[string]int64{"a": 1})
			}
			return numbers.Put(tx, put("found", int64(found)))
		})
		if err := s.View(ctx, func(v *store.View) error {
			if names := show(t, v, byValue.Is(1)); names != "a found" {
				t.Errorf("after %d tries these are 1: %q", tries, names)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}
