package service

import (
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The limits of an entry's selector, which is evaluated for each change: the depth of nesting and the total number of selectors.
const (
	maxSelectorDepth = 32
	maxSelectors     = 256
)

// checkSelector rejects selectors without a condition, nested deeper than depth, or more of them than remaining in total.
func checkSelector(s *resourcepb.Selector, depth int, remaining *int) error {
	if *remaining--; depth == 0 || *remaining < 0 {
		return invalid("selector invalid: the maximum is %d selectors, nested %d deep", maxSelectors, maxSelectorDepth)
	}
	var parts []*resourcepb.Selector
	switch by := s.GetBy().(type) {
	case nil:
		return invalid("selector invalid: it has no condition")
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
		if err := checkSelector(part, depth-1, remaining); err != nil {
			return err
		}
	}
	return nil
}

// idOnly reports whether only the id of a resource is known, because it left the caller's view.
func idOnly(res *resourcepb.Resource) bool { return res.GetVersion() == "" }

// mayMatch reports whether a selector matches a resource. If only the id is known, conditions on the rest count as matching, so that no
// watcher misses the end of a resource that it was sent.
func mayMatch(s *resourcepb.Selector, res *resourcepb.Resource) bool {
	match, known := evaluate(s, res)
	return match || !known
}

// evaluate reports whether a selector matches a resource, and whether the result is known.
func evaluate(s *resourcepb.Selector, res *resourcepb.Resource) (match, known bool) {
	id, whole := res.GetId(), !idOnly(res)
	switch by := s.GetBy().(type) {
	case *resourcepb.Selector_Name:
		return id.GetName() == by.Name, true
	case *resourcepb.Selector_NamePrefix:
		return strings.HasPrefix(id.GetName(), by.NamePrefix), true
	case *resourcepb.Selector_Tenancy:
		return unitMatches(by.Tenancy.GetPartition(), id.GetTenancy().GetPartition()) &&
			unitMatches(by.Tenancy.GetNamespace(), id.GetTenancy().GetNamespace()), true
	case *resourcepb.Selector_Owner:
		return ownerMatches(by.Owner, res.GetOwner()), whole
	case *resourcepb.Selector_Metadata:
		value, ok := res.GetMetadata()[by.Metadata.GetKey()]
		return ok && (by.Metadata.Value == nil || value == by.Metadata.GetValue()), whole
	case *resourcepb.Selector_And:
		known = true
		for _, part := range by.And.GetOf() {
			switch m, k := evaluate(part, res); {
			case !k:
				known = false
			case !m:
				return false, true
			}
		}
		return known, known
	case *resourcepb.Selector_Or:
		known = true
		for _, part := range by.Or.GetOf() {
			switch m, k := evaluate(part, res); {
			case !k:
				known = false
			case m:
				return true, true
			}
		}
		return false, known
	case *resourcepb.Selector_Not:
		match, known = evaluate(by.Not, res)
		return !match, known
	}
	return false, true
}

func unitMatches(selected, unit string) bool { return selected == storage.Wildcard || selected == unit }

// ownerMatches reports whether an owner is the selected one. The uid of selected is optional.
func ownerMatches(selected, owner *resourcepb.ID) bool {
	return owner != nil && compareKeys(selected, owner) == 0 && (selected.GetUid() == "" || selected.GetUid() == owner.GetUid())
}
