package etcdserver

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A key is stored as a resource of this type. Its bytes are cut into the partition, the namespace and the name, so that the order of
// resources is the order of the bytes. A mark begins each part, which keeps it from being empty, or a wildcard.
const (
	mark       = "="
	partSize   = 254 // with the mark, the most that a part may have
	maxKeySize = 3 * partSize
	// uid is that of every key: what tells a key's lives apart is the revision of its last change.
	uid = "key"
)

var keyType = &resourcepb.Type{Group: "etcd", GroupVersion: "v3", Kind: "key"}

// beyond comes after every key.
var beyond = &resourcepb.ID{Type: &resourcepb.Type{Group: keyType.Group, Kind: keyType.Kind + "\x01"}, Tenancy: &resourcepb.Tenancy{}}

// idOf returns the id of a key that is to be written.
func idOf(key []byte) (*resourcepb.ID, error) {
	switch {
	case len(key) > maxKeySize:
		return nil, unfit(key, fmt.Sprintf("it has %d bytes, the most is %d", len(key), maxKeySize))
	case !utf8.Valid(key):
		return nil, unfit(key, "it is not valid UTF-8")
	case bytes.IndexByte(key, 0) >= 0:
		return nil, unfit(key, "it holds a NUL byte")
	}
	for _, cut := range []int{partSize, 2 * partSize} {
		if len(key) > cut && !utf8.RuneStart(key[cut]) {
			return nil, unfit(key, fmt.Sprintf("a character lies across byte %d", cut))
		}
	}
	return idAt(string(key)), nil
}

// unfit is the refusal of a key that etcd would take.
func unfit(key []byte, why string) error {
	return status.Errorf(codes.InvalidArgument, "etcdserver: the key %.100q cannot be stored: %s", key, why)
}

// idAt cuts a key, or a bound of keys, which may be a byte longer.
func idAt(key string) *resourcepb.ID {
	cut := func(n int) (part string) {
		n = min(n, len(key))
		part, key = mark+key[:n], key[n:]
		return part
	}
	return &resourcepb.ID{
		Uid:     uid,
		Type:    keyType,
		Tenancy: &resourcepb.Tenancy{Partition: cut(partSize), Namespace: cut(partSize)},
		Name:    mark + key,
	}
}

// keyOf returns the key that is stored under an id.
func keyOf(id *resourcepb.ID) []byte {
	parts := []string{id.GetTenancy().GetPartition(), id.GetTenancy().GetNamespace(), id.GetName()}
	key := make([]byte, 0, len(parts[0])+len(parts[1])+len(parts[2]))
	for _, part := range parts {
		key = append(key, strings.TrimPrefix(part, mark)...)
	}
	return key
}

// spanOf returns the span of a request: one key, the keys from key up to end, or all from key on if end is a single NUL. It is false if no
// key can lie in it.
func spanOf(key, end []byte) (storage.Span, bool) {
	if len(end) == 0 {
		id, err := idOf(key)
		if err != nil {
			return storage.Span{}, false // such a key is never stored
		}
		to := idAt(string(key))
		to.Name += "\x01"
		return storage.Span{From: id, To: to}, true
	}
	from, to := bound(key), beyond
	if !isAll(end) {
		if to = bound(end); bytes.Compare(key, end) >= 0 {
			return storage.Span{}, false
		}
	}
	return storage.Span{From: from, To: to}, from != beyond
}

// isAll reports whether the end of a range says that it has none.
func isAll(end []byte) bool { return len(end) == 1 && end[0] == 0 }

// bound returns what the first key at or after some bytes, which need not be a key themselves, is not before.
func bound(b []byte) *resourcepb.ID {
	s := string(b)
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i] + "\x01" // what begins with s[:i] and is longer
	}
	if len(s) > maxKeySize {
		s = s[:maxKeySize] + "\x01"
	}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch cut := partSize * (i/partSize + 1); {
		case r == utf8.RuneError && n <= 1:
			return next(s[:i], s[i:])
		case cut <= 2*partSize && i < cut && i+n > cut:
			return next(s[:i], "\xff") // no key has a character there that is as long
		}
		i += n
	}
	if len(s) > maxKeySize+1 {
		return next(s[:len(s)-1], "\xff")
	}
	return idAt(s)
}

// next returns the bound of the first key that begins with prefix and goes on with a character that is not before rest, or else of the
// first one behind all that begin with prefix.
func next(prefix, rest string) *resourcepb.ID {
	if r, ok := runeFrom(rest); ok {
		return bound([]byte(prefix + string(r)))
	}
	for prefix != "" {
		last, n := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-n]
		if last < utf8.MaxRune {
			if last++; last == 0xd800 {
				last = 0xe000 // those between are no characters
			}
			return bound([]byte(prefix + string(last)))
		}
	}
	return beyond
}

// runeFrom returns the first character whose encoding does not come before rest.
func runeFrom(rest string) (rune, bool) {
	low, high := rune(1), rune(utf8.MaxRune+1)
	for low < high {
		mid := low + (high-low)/2
		if encoded(mid) < rest {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low >= 0xd800 && low < 0xe000 {
		low = 0xe000
	}
	return low, low <= utf8.MaxRune
}

// encoded encodes a character, or what would be one if it were not half of another encoding, so that all are in order.
func encoded(r rune) string {
	if r >= 0xd800 && r < 0xe000 {
		return string([]byte{0xed, 0x80 | byte(r>>6)&0x3f, 0x80 | byte(r)&0x3f})
	}
	return string(r)
}
