package key

import (
	"bytes"
	"strings"

	"github.com/ashlar-dev/storage"
)

// Seek returns the smallest bytes, greater than or equal to at, that a matching key can have: at itself if a key with these bytes
// matches. ok is false if no matching key follows. A reader that reaches a key that does not match continues there instead of at
// the next key, so a run of other keys costs one probe. at need not be a key: nil precedes all keys, and the bytes of a key with a
// NUL appended directly follow it.
//
// The bytes are a bound and not always a valid key: a unit that may hold any text may be empty, or longer than the limit by a byte.
func (f *Filter) Seek(at []byte) (from []byte, ok bool) {
	units := [...]string{f.Group, f.Kind, f.Partition, f.Namespace}
	from = make([]byte, 0, len(at)+f.size()+2)
	longer := -1 // the last wildcard, whose text may be increased if no key with the prefix of at matches
	rest := at
	for i, unit := range units {
		text, after, ended := bytes.Cut(rest, []byte{0})
		if unit == storage.Wildcard {
			from = append(from, text...)
			if !ended {
				return f.least(append(from, 0), i+1), true // the end of the unit is greater than at, which has no end
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

// larger returns the smallest bytes of a matching key that equals at before the given unit and has a greater text in it.
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

// least appends the smallest bytes that can follow in a matching key, from a unit on.
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
