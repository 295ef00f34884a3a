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

// A key is stored as a resource of keyType. Its bytes are split into partition, namespace and name, so resources sort like the bytes. Each
// part begins with partPrefix, so it is never empty or a wildcard.
const (
	partPrefix = "="
	partSize   = 254 // maximum size of a part without partPrefix
	maxKeySize = 3 * partSize
	// uid is the uid of every key. The lives of a key differ by the revision of their last change.
	uid = "key"
)

var keyType = &resourcepb.Type{Group: "etcd", GroupVersion: "v3", Kind: "key"}

// afterAllKeys sorts after every key.
var afterAllKeys = &resourcepb.ID{Type: &resourcepb.Type{Group: keyType.Group, Kind: keyType.Kind + "\x01"}, Tenancy: &resourcepb.Tenancy{}}

// idOf returns the id of a key's resource.
func idOf(key []byte) (*resourcepb.ID, error) {
	switch {
	case len(key) > maxKeySize:
		return nil, unstorable(key, fmt.Sprintf("it has %d bytes, the maximum is %d", len(key), maxKeySize))
	case !utf8.Valid(key):
		return nil, unstorable(key, "it is not valid UTF-8")
	case bytes.IndexByte(key, 0) >= 0:
		return nil, unstorable(key, "it contains a NUL byte")
	}
	for _, cut := range []int{partSize, 2 * partSize} {
		if len(key) > cut && !utf8.RuneStart(key[cut]) {
			return nil, unstorable(key, fmt.Sprintf("a character crosses byte %d", cut))
		}
	}
	return idAt(string(key)), nil
}

// unstorable returns the error for a key that etcd would accept.
func unstorable(key []byte, reason string) error {
	return status.Errorf(codes.InvalidArgument, "etcdserver: the key %.100q cannot be stored: %s", key, reason)
}

// idAt splits a key, or a bound of keys, which may be one byte longer.
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

// keyOf returns the key stored under an id.
func keyOf(id *resourcepb.ID) []byte {
	parts := []string{id.GetTenancy().GetPartition(), id.GetTenancy().GetNamespace(), id.GetName()}
	key := make([]byte, 0, len(parts[0])+len(parts[1])+len(parts[2]))
	for _, part := range parts {
		key = append(key, strings.TrimPrefix(part, partPrefix)...)
	}
	return key
}

// requestRange returns the range of a request: one key, the keys from key (inclusive) to end (exclusive), or all keys from key on if end is
// a single NUL. It returns false if no storable key is in the range.
func requestRange(key, end []byte) (history.Range, bool) {
	if len(end) == 0 {
		id, err := idOf(key)
		if err != nil {
			return history.Range{}, false // such a key is never stored
		}
		to := idAt(string(key))
		to.Name += "\x01"
		return history.Range{From: id, To: to}, true
	}
	from, to := lowerBound(key), afterAllKeys
	if !isAll(end) {
		if to = lowerBound(end); bytes.Compare(key, end) >= 0 {
			return history.Range{}, false
		}
	}
	return history.Range{From: from, To: to}, from != afterAllKeys
}

// isAll reports whether the end of a range means that it has no end.
func isAll(end []byte) bool { return len(end) == 1 && end[0] == 0 }

// lowerBound returns an id that is not after the first storable key at or after b. b need not be a storable key.
func lowerBound(b []byte) *resourcepb.ID {
	for s := string(b); ; {
		n := storablePrefix(s)
		head, tail := s[:n], s[n:]
		switch {
		case tail == "":
			return idAt(head)
		case tail[0] == 0:
			return idAt(head + "\x01") // longer keys that begin with head
		}
		if r, ok := runeFrom(tail); ok && fits(n, utf8.RuneLen(r)) {
			return idAt(head + string(r))
		}
		// All keys that begin with head sort before b: either no character sorts after the tail, or the ones that do are too long here, and
		// shorter ones sort before it.
		var ok bool
		if s, ok = prefixSuccessor(head); !ok {
			return afterAllKeys
		}
	}
}

// storablePrefix returns the length of the longest prefix that a storable key can have.
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

// fits reports whether a key can contain a character of the given size at an offset.
func fits(at, size int) bool { return at < maxKeySize && at/partSize == (at+size-1)/partSize }

// prefixSuccessor returns the smallest text after all texts with a prefix. It is at most one character longer than the prefix. It returns
// false if there is none.
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

// Surrogates are not characters: [firstSurrogate, afterSurrogates).
const firstSurrogate, afterSurrogates = 0xd800, 0xe000

// runeFrom returns the first character whose encoding is not before rest.
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

// encodeRune encodes a character. It also encodes surrogates, so that all encodings are in order.
func encodeRune(r rune) string {
	if r >= firstSurrogate && r < afterSurrogates {
		return string([]byte{0xed, 0x80 | byte(r>>6)&0x3f, 0x80 | byte(r)&0x3f})
	}
	return string(r)
}
