package key

import (
	"bytes"
	"strings"

	"github.com/ashlar-dev/storage"
)

// Seek returns the smallest bytes, at or after at, that a matching key can have: at itself if a key with these bytes matches. ok is
// false if no matching key follows. A reader that meets a key that does not match goes on there instead of at the next key, and so
// pays for a run of other keys with one probe. at need not be a key: nil is before all keys, a key's bytes with a NUL appended just
// after it.
//
// The bytes are a bound and not always those of a legal key: where any text may stand they hold none, or one that is too long by a
// byte.
func (f *Filter) Seek(at []byte) (from []byte, ok bool) {
	units := [...]string{f.Group, f.Kind, f.Partition, f.Namespace}
	from = make([]byte, 0, len(at)+f.size()+2)
	longer := -1 // the last wildcard whose text may be made larger if nothing that begins like at matches
	rest := at
	for i, unit := range units {
		text, after, ended := bytes.Cut(rest, []byte{0})
		if unit == storage.Wildcard {
			from = append(from, text...)
			if !ended {
				return f.least(append(from, 0), i+1), true // the unit's end is larger than at, which has none
			}
			longer = i
		} else {
			switch order := strings.Compare(unit, string(text)); {
			case order > 0 || order == 0 && !ended:
				return f.least(from, i), true
			case order < 0:
				return f.larger(at, longer)
			}
			from = append(from, unit...)
		}
		from = append(from, 0)
		rest = after
	}
	name, _, ended := bytes.Cut(rest, []byte{0})
	switch {
	case strings.HasPrefix(string(name), f.NamePrefix):
		from = append(from, name...)
		if ended {
			from = append(from, 1) // the next text without NUL
		}
		return from, true
	case f.NamePrefix > string(name):
		return append(from, f.NamePrefix...), true
	}
	return f.larger(at, longer)
}

// larger returns the smallest bytes of a matching key whose text for a unit is larger than that in at, and that are like at before.
func (f *Filter) larger(at []byte, unit int) (from []byte, ok bool) {
	if unit < 0 {
		return nil, false
	}
	end := 0
	for range unit {
		end += bytes.IndexByte(at[end:], 0) + 1
	}
	end += bytes.IndexByte(at[end:], 0)
	from = append(make([]byte, 0, end+f.size()+2), at[:end]...)
	return f.least(append(from, 1, 0), unit+1), true
}

// least appends the smallest that can follow in a matching key, from a unit on.
func (f *Filter) least(from []byte, unit int) []byte {
	units := [...]string{f.Group, f.Kind, f.Partition, f.Namespace}
	for _, text := range units[unit:] {
		if text != storage.Wildcard {
			from = append(from, text...)
		}
		from = append(from, 0)
	}
	return append(from, f.NamePrefix...)
}

func (f *Filter) size() int {
	return len(f.Group) + len(f.Kind) + len(f.Partition) + len(f.Namespace) + len(f.NamePrefix) + 4
}
