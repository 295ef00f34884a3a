//go:build race

package tables_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage/typed/tables"
)

// Builds with the race detector panic if a program changes an object of the store, however it obtained the object.
func TestChangesOfSharedObjectsPanic(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		for name, wrong := range map[string]func(tx *tables.Tx) error{
			"read": func(tx *tables.Tx) error {
				o, err := numbers.Get(tx, id("a"))
				o.Data.Value++
				return err
			},
			"read unchecked": func(tx *tables.Tx) error {
				all, err := numbers.List(tx.UncheckedReader())
				all[0].Data.Value++
				return err
			},
			"put": func(tx *tables.Tx) error {
				o := put("b", 1)
				err := numbers.Put(tx, o)
				o.Data.Value++
				return err
			},
		} {
			s := open(t, url, numbers)
			if err := s.Update(ctx, func(tx *tables.Tx) error {
				if _, err := numbers.Edit(tx, id("a")); err == nil {
					return nil
				}
				return numbers.Put(tx, put("a", 1))
			}); err != nil {
				t.Fatal(err)
			}
			if found := panicMessage(func() { _ = s.Update(ctx, wrong) }); !strings.Contains(found, "was changed by the program") {
				t.Errorf("change of an object that was %s: panic %q", name, found)
			}
		}
	})
}

// panicMessage returns the panic value of a function.
func panicMessage(fn func()) (with string) {
	defer func() { with = fmt.Sprint(recover()) }()
	fn()
	return ""
}
