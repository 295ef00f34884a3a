package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Order is the sort order of rows.
type Order int

// Sort orders. All except ByType put the largest first.
const (
	ByType Order = iota
	ByResources
	ByBytes
	ByChanges
	orders
)

// String returns the name of the column.
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

// Row is the line of a type in a picture.
type Row struct {
	Type            storage.UnversionedType
	Resources       int
	Bytes           int64
	Writes, Deletes float64 // per second
}

// Picture is the state of a tally at one moment. It does not change.
type Picture struct {
	At    time.Time
	Since time.Duration // since the tally began
	Rows  []Row         // by type
	Total Row
	// Changes are the newest changes, newest first.
	Changes []Change
	// Complete reports whether all resources have been counted.
	Complete bool
	// Lag is the time that the watch last took to prove that it was up to date. LagKnown reports whether it has done so.
	Lag      time.Duration
	LagKnown bool
	// Note is the reason why counting started again or has stopped.
	Note string
}

// Change is a change that a watch has returned.
type Change struct {
	// At is the time of receipt, by the clock of this program.
	At time.Time
	// Action is "create", "update" or "delete".
	Action string
	ID     *resourcepb.ID
}
