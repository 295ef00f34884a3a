package conformance

import (
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A filter is the selection of List, ListPage and watches.
type filter struct {
	typ     storage.UnversionedType
	tenancy *resourcepb.Tenancy
	prefix  string
}

func newFilter(group, kind, partition, namespace, prefix string) filter {
	return filter{storage.UnversionedType{Group: group, Kind: kind}, &resourcepb.Tenancy{Partition: partition, Namespace: namespace}, prefix}
}

// of returns the selected resources in list order.
func (f filter) of(all []*resourcepb.Resource) []*resourcepb.Resource {
	var selected []*resourcepb.Resource
	for _, res := range all {
		if f.selects(res.Id) {
			selected = append(selected, res)
		}
	}
	inOrder(selected)
	return selected
}

// selects reports whether the filter selects an id, by the plainest reading of the contract.
func (f filter) selects(id *resourcepb.ID) bool {
	unit := func(wanted, is string) bool { return wanted == storage.Wildcard || wanted == is }
	return unit(f.typ.Group, id.Type.Group) && unit(f.typ.Kind, id.Type.Kind) &&
		unit(f.tenancy.Partition, id.Tenancy.Partition) && unit(f.tenancy.Namespace, id.Tenancy.Namespace) &&
		strings.HasPrefix(id.Name, f.prefix)
}

func (f filter) String() string {
	return fmt.Sprintf("%q/%q in %q/%q, prefix %q", f.typ.Group, f.typ.Kind, f.tenancy.Partition, f.tenancy.Namespace, f.prefix)
}

var allFilter = filter{anything, anywhere, ""}

var homeThings = filter{things, home, ""}
