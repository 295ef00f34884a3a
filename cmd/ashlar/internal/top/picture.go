package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
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

// Row is what a picture says of a type.
type Row struct {
	Type            storage.UnversionedType
	Resources       int
	Bytes           int64
	Writes, Deletes float64 // in a second
}

// Picture is what a tally says at a moment. Nobody changes it.
type Picture struct {
	At    time.Time
	Since time.Duration // since the tally began
	Rows  []Row         // by type
	Total Row
	// Changes are the newest ones, the newest first.
	Changes []Change
	// Complete says that all resources were counted that there are.
	Complete bool
	// Lag is how long the watch took to prove that it shows everything, when it was asked last; Proven says that it did.
	Lag      time.Duration
	LagKnown bool
	// Note says why the counting had to begin anew, or does not go on.
	Note string
}

// Change is a change that a watch has returned.
type Change struct {
	// At is when it was seen, by the clock of this program.
	At time.Time
	// Action happened: "create", "update" or "delete".
	Action string
	ID     *resourcepb.ID
}
