// Package ranges computes ranges of keys for a history.Historian: the range of a filter and the range of one key.
package ranges

import (
	"unicode/utf8"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Of returns a range that contains all keys matching a filter. If the filter begins with fixed parts, the range contains few other
// keys.
func Of(f *key.Filter) history.Range {
	fixed := []string{f.Group, f.Kind, f.Partition, f.Namespace, f.NamePrefix}
	for i, part := range fixed {
		if part == storage.Wildcard && i < 4 || part == "" && i == 4 {
			fixed = fixed[:i]
			break
		}
	}
	if len(fixed) == 0 {
		return history.Range{}
	}
	s := history.Range{From: idOf(fixed...)}
	if len(fixed) < 5 {
		s.To = after(fixed...)
	} else if name, ok := afterPrefix(f.NamePrefix); ok {
		s.To = idOf(append(fixed[:4:4], name)...)
	} else {
		s.To = after(fixed[:4]...)
	}
	return s
}

// OfKey returns the range of one key.
func OfKey(k key.Key) history.Range {
	return history.Range{From: k.ID("", ""), To: After(k)}
}

// After returns the lowest id after a key, or nil.
func After(k key.Key) *resourcepb.ID {
	return after(k.Group, k.Kind, k.Partition, k.Namespace, k.Name)
}

// after returns the lowest id after all keys that begin with these parts, or nil.
func after(parts ...string) *resourcepb.ID {
	for i := len(parts) - 1; i >= 0; i-- {
		// No text is longer than the limit, and none contains a NUL.
		next, ok := parts[i]+"\x01", len(parts[i]) < check.MaxPart
		if !ok {
			next, ok = afterPrefix(parts[i])
		}
		if ok {
			return idOf(append(parts[:i:i], next)...)
		}
	}
	return nil
}

// afterPrefix returns the lowest valid text after all texts with the prefix s. It returns false if there is none.
func afterPrefix(s string) (string, bool) {
	for s != "" {
		r, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
		if r++; r == 0xd800 {
			r = 0xe000 // the surrogates between are no characters
		}
		if r <= utf8.MaxRune && len(s)+utf8.RuneLen(r) <= check.MaxPart {
			return s + string(r), true
		}
	}
	return "", false
}

// idOf returns an id with the first parts of a key.
func idOf(parts ...string) *resourcepb.ID {
	var all [5]string
	copy(all[:], parts)
	return key.Key{Group: all[0], Kind: all[1], Partition: all[2], Namespace: all[3], Name: all[4]}.ID("", "")
}
