package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ashlar-dev/storage"
)

// Order is what rows are sorted by.
type Order int

// The orders. All but the first have the largest first.
const (
	ByType Order = iota
	ByResources
	ByBytes
	ByChanges
	orders
)

// String returns the column's name.
func (o Order) String() string { return [...]string{"type", "resources", "bytes", "changes"}[o] }

func (p *Picture) sort(by Order, reverse bool) {
	slices.SortFunc(p.Rows, func(a, b Row) int {
		c := 0
		switch by {
		case ByResources:
			c = cmp.Compare(b.Resources, a.Resources)
		case ByBytes:
			c = cmp.Compare(b.Bytes, a.Bytes)
		case ByChanges:
			c = cmp.Compare(b.Writes+b.Deletes, a.Writes+a.Deletes)
		}
		if c == 0 {
			c = strings.Compare(name(a.Type), name(b.Type))
		}
		if reverse {
			return -c
		}
		return c
	})
}

func name(t storage.UnversionedType) string { return t.Group + "/" + t.Kind }
