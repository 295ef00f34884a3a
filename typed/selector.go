package typed

import "github.com/ashlar-dev/storage/resourcepb"

// Selector selects the resources whose metadata has all of its entries. The empty selector selects all resources.
type Selector map[string]string

// matches reports whether a resource is selected.
func (s Selector) matches(res *resourcepb.Resource) bool {
	for name, value := range s {
		if got, exists := res.GetMetadata()[name]; !exists || got != value {
			return false
		}
	}
	return true
}

// matchesAll reports whether all selectors select a resource.
func matchesAll(selectors []Selector, res *resourcepb.Resource) bool {
	for _, s := range selectors {
		if !s.matches(res) {
			return false
		}
	}
	return true
}
