package etcdserver

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A key is stored as a resource of this type. Its bytes are cut into the partition, the namespace and the name, so that the order of
// resources is the order of the bytes. A mark begins each part, which keeps it from being empty, or a wildcard.
const (
	partPrefix = "="
	partSize   = 254 // with the mark, the most that a part may have
	maxKeySize = 3 * partSize
	// uid is that of every key: what tells a key's lives apart is the revision of its last change.
	uid = "key"
)

var keyType = &resourcepb.Type{Group: "etcd", GroupVersion: "v3", Kind: "key"}

// afterAllKeys comes after every key.
var afterAllKeys = &resourcepb.ID{Type: &resourcepb.Type{Group: keyType.Group, Kind: keyType.Kind + "\x01"}, Tenancy: &resourcepb.Tenancy{}}

// idOf returns the id of a key that is to be written.
func idOf(key []byte) (*resourcepb.ID, error) {
	switch {
	case len(key) > maxKeySize:
		return nil, unstorable(key, fmt.Sprintf("it has %d bytes, the most is %d", len(key), maxKeySize))
	case !utf8.Valid(key):
		return nil, unstorable(key, "it is not valid UTF-8")
	case bytes.IndexByte(key, 0) >= 0:
		return nil, unstorable(key, "it holds a NUL byte")
	}
	for _, cut := range []int{partSize, 2 * partSize} {
		if len(key) > cut && !utf8.RuneStart(key[cut]) {
			return nil, unstorable(key, fmt.Sprintf("a character lies across byte %d", cut))
		}
	}
	return idAt(string(key)), nil
}

// unstorable is the refusal of a key that etcd would take.
func unstorable(key []byte, why string) error {
	return status.Errorf(codes.InvalidArgument, "etcdserver: the key %.100q cannot be stored: %s", key, why)
}

// idAt cuts a key, or a bound of keys, which may be a byte longer.
func idAt(key string) *resourcepb.ID {
	cut := func(n int) (part string) {
		n = min(n, len(key))
		part, key = partPrefix+key[:n], key[n:]
		return part
	}
	return &resourcepb.ID{
		Uid:     uid,
		Type:    keyType,
		Tenancy: &resourcepb.Tenancy{Partition: cut(partSize), Namespace: cut(partSize)},
		Name:    partPrefix + key,
	}
}

// keyOf returns the key that is stored under an id.
func keyOf(id *resourcepb.ID) []byte {
	parts := []string{id.GetTenancy().GetPartition(), id.GetTenancy().GetNamespace(), id.GetName()}
	key := make([]byte, 0, len(parts[0])+len(parts[1])+len(parts[2]))
	for _, part := range parts {
		key = append(key, strings.TrimPrefix(part, partPrefix)...)
	}
	return key
}

// requestRange returns the span of a request: one key, the keys from key up to end, or all from key on if end is a single NUL. It is false if no
// key can lie in it.
func requestRange(key, end []byte) (history.Span, bool) {
	if len(end) == 0 {
		id, err := idOf(key)
		if err != nil {
			return history.Span{}, false // such a key is never stored
		}
		to := idAt(string(key))
		to.Name += "\x01"
		return history.Span{From: id, To: to}, true
	}
	from, to := lowerBound(key), afterAllKeys
	if !isAll(end) {
		if to = lowerBound(end); bytes.Compare(key, end) >= 0 {
			return history.Span{}, false
		}
	}
	return history.Span{From: from, To: to}, from != afterAllKeys
}

// isAll reports whether the end of a range says that it has none.
func isAll(end []byte) bool { return len(end) == 1 && end[0] == 0 }

// lowerBound returns what the first key at or after some bytes, which need not be a key themselves, is not before.
func lowerBound(b []byte) *resourcepb.ID {
	for s := string(b); ; {
		n := storablePrefix(s)
		head, tail := s[:n], s[n:]
		switch {
		case tail == "":
			return idAt(head)
		case tail[0] == 0:
			return idAt(head + "\x01") // what begins with head and is longer
		}
		if r, ok := runeFrom(tail); ok && fits(n, utf8.RuneLen(r)) {
			return idAt(head + string(r))
		}
		// Whatever begins with head comes before: either no character comes after the tail, or those that do are too long there, and
		// shorter ones come before it.
		var ok bool
		if s, ok = prefixSuccessor(head); !ok {
			return afterAllKeys
		}
	}
}

// storablePrefix returns how many of the first bytes can be those of a key.
func storablePrefix(s string) int {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == 0 || r == utf8.RuneError && n == 1 || !fits(i, n) {
			return i
		}
		i += n
	}
	return len(s)
}

// fits reports whether a key can have a character of so many bytes at a place.
func fits(at, size int) bool { return at < maxKeySize && at/partSize == (at+size-1)/partSize }

// prefixSuccessor returns what comes after all that begins with a prefix, and before which nothing else does. It is no longer than the prefix and
// one character; false if there is nothing.
func prefixSuccessor(prefix string) (string, bool) {
	for prefix != "" {
		last, n := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-n]
		if last < utf8.MaxRune {
			if last++; last == firstSurrogate {
				last = afterSurrogates
			}
			return prefix + string(last), true
		}
	}
	return "", false
}

// Between these are numbers of no characters.
const firstSurrogate, afterSurrogates = 0xd800, 0xe000

// runeFrom returns the first character whose encoding does not come before rest.
func runeFrom(rest string) (rune, bool) {
	low, high := rune(1), rune(utf8.MaxRune+1)
	for low < high {
		mid := low + (high-low)/2
		if encodeRune(mid) < rest {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low >= firstSurrogate && low < afterSurrogates {
		low = afterSurrogates
	}
	return low, low <= utf8.MaxRune
}

// encodeRune encodes a character, or what would be one if it were not half of another encoding, so that all are in order.
func encodeRune(r rune) string {
	if r >= firstSurrogate && r < afterSurrogates {
		return string([]byte{0xed, 0x80 | byte(r>>6)&0x3f, 0x80 | byte(r)&0x3f})
	}
	return string(r)
}
