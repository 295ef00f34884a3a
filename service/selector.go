package service

import (
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The bounds of an entry's selector, which is looked at for each change: how deep selectors may lie in each other, and how many there may be.
const (
	maxSelectorDepth = 32
	maxSelectors     = 256
)

// checkSelector refuses selectors that say nothing, and more than depth in each other or than left in all.
func checkSelector(s *resourcepb.Selector, depth int, left *int) error {
	if *left--; depth == 0 || *left < 0 {
		return invalid("selector invalid: %d selectors, and %d in each other, are the most", maxSelectors, maxSelectorDepth)
	}
	var parts []*resourcepb.Selector
	switch by := s.GetBy().(type) {
	case nil:
		return invalid("selector invalid: it says nothing to look at")
	case *resourcepb.Selector_And:
		parts = by.And.GetOf()
	case *resourcepb.Selector_Or:
		parts = by.Or.GetOf()
	case *resourcepb.Selector_Not:
		parts = []*resourcepb.Selector{by.Not}
	case *resourcepb.Selector_Metadata:
		if by.Metadata.GetKey() == "" {
			return invalid("selector invalid: metadata without a key")
		}
	}
	for _, part := range parts {
		if err := checkSelector(part, depth-1, left); err != nil {
			return err
		}
	}
	return nil
}

// mayMatch reports whether a selector mayMatch a resource. Of a resource that left the caller's view only the id is known, and what a
// selector would look at beside it counts as matching, so that nobody misses the end of what it was sent.
func mayMatch(s *resourcepb.Selector, res *resourcepb.Resource) bool {
	yes, known := evaluate(s, res)
	return yes || !known
}

// evaluate reports whether a selector matches a resource, and whether that can be known.
func evaluate(s *resourcepb.Selector, res *resourcepb.Resource) (yes, known bool) {
	id, whole := res.GetId(), res.GetVersion() != ""
	switch by := s.GetBy().(type) {
	case *resourcepb.Selector_Name:
		return id.GetName() == by.Name, true
	case *resourcepb.Selector_NamePrefix:
		return strings.HasPrefix(id.GetName(), by.NamePrefix), true
	case *resourcepb.Selector_Tenancy:
		return unitMatches(by.Tenancy.GetPartition(), id.GetTenancy().GetPartition()) && unitMatches(by.Tenancy.GetNamespace(), id.GetTenancy().GetNamespace()), true
	case *resourcepb.Selector_Owner:
		return ownerMatches(by.Owner, res.GetOwner()), whole
	case *resourcepb.Selector_Metadata:
		value, there := res.GetMetadata()[by.Metadata.GetKey()]
		return there && (by.Metadata.Value == nil || value == by.Metadata.GetValue()), whole
	case *resourcepb.Selector_And:
		known = true
		for _, part := range by.And.GetOf() {
			switch y, k := evaluate(part, res); {
			case !k:
				known = false
			case !y:
				return false, true
			}
		}
		return known, known
	case *resourcepb.Selector_Or:
		known = true
		for _, part := range by.Or.GetOf() {
			switch y, k := evaluate(part, res); {
			case !k:
				known = false
			case y:
				return true, true
			}
		}
		return false, known
	case *resourcepb.Selector_Not:
		yes, known = evaluate(by.Not, res)
		return !yes, known
	}
	return false, true
}

func unitMatches(asked, is string) bool { return asked == storage.Wildcard || asked == is }

// ownerMatches reports whether an owner is the one asked for.
func ownerMatches(asked, is *resourcepb.ID) bool {
	return is != nil && storage.UnversionedTypeFrom(asked.GetType()) == storage.UnversionedTypeFrom(is.GetType()) &&
		asked.GetTenancy().GetPartition() == is.GetTenancy().GetPartition() &&
		asked.GetTenancy().GetNamespace() == is.GetTenancy().GetNamespace() &&
		asked.GetName() == is.GetName() && (asked.GetUid() == "" || asked.GetUid() == is.GetUid())
}
