package tables_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/typed/tables"
)

// A View refuses reads after its function has returned.
func TestViewAfterEnd(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		create(ctx, t, s, map[string]int64{"a": 1})
		var ended []*tables.View
		keep := func(v *tables.View) error {
			ended = append(ended, v)
			_, err := numbers.Get(v, id("a"))
			return err
		}
		if err := errors.Join(s.View(ctx, keep), s.View(ctx, keep, tables.Linearizable)); err != nil {
			t.Fatal(err)
		}
		w, err := s.ViewAndWatch(ctx, keep)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for i, v := range ended {
			if _, err := numbers.Get(v, id("a")); !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("%d: get: %v", i, err)
			}
			if _, err := numbers.List(v); !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("%d: list: %v", i, err)
			}
			if all := numbers.DecodeErrors(v); len(all) != 1 || !errors.Is(all[0], storage.ErrInvalid) {
				t.Errorf("%d: decode errors: %v", i, all)
			}
		}
	})
}
