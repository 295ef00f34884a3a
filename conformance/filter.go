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

// selected returns the selected resources in list order.
func (f filter) selected(all []*resourcepb.Resource) []*resourcepb.Resource {
	var selected []*resourcepb.Resource
	for _, res := range all {
		if f.selects(res.Id) {
			selected = append(selected, res)
		}
	}
	inOrder(selected)
	return selected
}

// selects reports whether the filter selects an id. It compares part by part, as the contract states it.
func (f filter) selects(id *resourcepb.ID) bool {
	matches := func(pattern, value string) bool { return pattern == storage.Wildcard || pattern == value }
	return matches(f.typ.Group, id.Type.Group) && matches(f.typ.Kind, id.Type.Kind) &&
		matches(f.tenancy.Partition, id.Tenancy.Partition) && matches(f.tenancy.Namespace, id.Tenancy.Namespace) &&
		strings.HasPrefix(id.Name, f.prefix)
}

func (f filter) String() string {
	return fmt.Sprintf("%q/%q in %q/%q, prefix %q", f.typ.Group, f.typ.Kind, f.tenancy.Partition, f.tenancy.Namespace, f.prefix)
}

var allFilter = filter{anything, anywhere, ""}

var homeThings = filter{things, home, ""}
