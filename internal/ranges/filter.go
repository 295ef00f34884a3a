package ranges

import (
	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Filter selects keys as Backend.List does. It serves packages that use only the contract, without the keys of package driver.
type Filter struct{ keys key.Filter }

// Matching returns the filter of a list.
func Matching(typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) *Filter {
	return &Filter{key.Filter{
		Group: typ.Group, Kind: typ.Kind, Partition: tenancy.GetPartition(), Namespace: tenancy.GetNamespace(), NamePrefix: namePrefix,
	}}
}

// Match reports whether the filter selects the key of an id.
func (f *Filter) Match(id *resourcepb.ID) bool {
	k := key.Of(id)
	return f.keys.Match(&k)
}

// Range returns a range that contains all keys which the filter selects.
func (f *Filter) Range() history.Range { return Of(&f.keys) }

// After returns the part of the range after an id that the filter selects.
func (f *Filter) After(id *resourcepb.ID) history.Range {
	s, k := f.Range(), key.Of(id)
	k.Name += "\x01" // names contain no NUL, so no key lies between
	s.From = k.ID("", "")
	return s
}
