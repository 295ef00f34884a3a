package key

import (
	"strings"

	"github.com/ashlar-dev/storage"
)

// Filter selects the keys of a list or a watch. Each part except the name prefix may be storage.Wildcard.
type Filter struct {
	Group, Kind, Partition, Namespace, NamePrefix string
}

// Match reports whether the filter selects k.
func (f *Filter) Match(k *Key) bool {
	return (f.Kind == k.Kind || f.Kind == storage.Wildcard) &&
		(f.Group == k.Group || f.Group == storage.Wildcard) &&
		(f.Namespace == k.Namespace || f.Namespace == storage.Wildcard) &&
		(f.Partition == k.Partition || f.Partition == storage.Wildcard) &&
		strings.HasPrefix(k.Name, f.NamePrefix)
}

// Prefix returns the longest common prefix of the Bytes of all matching keys. exact reports that every key with this prefix
// matches, so no further filtering is needed.
func (f *Filter) Prefix() (prefix []byte, exact bool) {
	parts := []string{f.Group, f.Kind, f.Partition, f.Namespace}
	for i, part := range parts {
		if part == storage.Wildcard {
			exact = f.NamePrefix == ""
			for _, rest := range parts[i:] {
				exact = exact && rest == storage.Wildcard
			}
			return prefix, exact
		}
		prefix = append(prefix, part...)
		prefix = append(prefix, 0)
	}
	return append(prefix, f.NamePrefix...), true
}

// Bytes returns an unambiguous encoding of the filter, for tokens.
func (f *Filter) Bytes() []byte {
	return Key{f.Group, f.Kind, f.Partition, f.Namespace, f.NamePrefix}.Bytes()
}

// PrefixEnd returns the smallest bytes greater than all bytes with this prefix, or nil if there are none because the prefix is
// empty or all 0xff.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := append([]byte(nil), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}
