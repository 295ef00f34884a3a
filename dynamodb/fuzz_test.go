package dynamodb

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// clean turns any text into a legal part of a key, or a prefix.
func clean(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "\u00e9"), "\x00", "") }

// Keys of two stores are disjoint, keys of one store keep their order, and decoding returns the encoded key.
func FuzzKeys(f *testing.F) {
	f.Add("a", "g", "k", "p", "n", "name", "a", "g", "k", "p", "n", "name")
	f.Add("a", "g", "k", "", "", "name", "ar", "", "", "", "", "")
	f.Add("a", "g", "k", "p", "n", "b", "a", "g", "k", "p", "n", "b\x01")
	f.Fuzz(func(t *testing.T, prefix1, g1, k1, p1, n1, name1, prefix2, g2, k2, p2, n2, name2 string) {
		one, two := layout{prefix: clean(prefix1)}, layout{prefix: clean(prefix2)}
		a := key.Key{Group: clean(g1), Kind: clean(k1), Partition: clean(p1), Namespace: clean(n1), Name: clean(name1)}
		b := key.Key{Group: clean(g2), Kind: clean(k2), Partition: clean(p2), Namespace: clean(n2), Name: clean(name2)}
		if got, err := one.keyOf(one.resource(a)); err != nil || got != a {
			t.Errorf("%v was decoded as %v, %v", a, got, err)
		}
		order := func(l layout) int {
			if by := bytes.Compare(l.resource(a).bytes(attrPK), l.resource(b).bytes(attrPK)); by != 0 {
				return by
			}
			return bytes.Compare(l.resource(a).bytes(attrSK), l.resource(b).bytes(attrSK))
		}
		if order(one) != a.Compare(b) {
			t.Errorf("%v and %v have a different order in DynamoDB", a, b)
		}
		if one != two {
			if _, err := two.keyOf(one.resource(a)); err == nil || one.resource(a).address() == two.resource(b).address() {
				t.Errorf("%v of the store %q is also a key of %q", a, one.prefix, two.prefix)
			}
		}
	})
}

// An item is a resource of its key, or damage that names the key. It never causes a large allocation.
func FuzzItem(f *testing.F) {
	l := layout{prefix: "test"}
	res := &resourcepb.Resource{Id: key.Key{Group: "g", Kind: "k", Name: "a"}.ID("uid", "v1")}
	data, err := codec.Encode(res)
	if err != nil {
		f.Fatal(err)
	}
	it := l.resource(key.Of(res.Id))
	pk, sk := it.bytes(attrPK), it.bytes(attrSK)
	stamp := (*versionRing)(nil).next(time.Unix(1234567890, 0)).bytes()
	f.Add(pk, sk, stamp, []byte("uid"), pack(data))
	f.Add(pk, sk, stamp, []byte("uid"), []byte{})
	f.Add(pk, sk, stamp, []byte("other"), pack(data))
	f.Add(pk, sk, stamp[1:], []byte("uid"), pack(data))
	f.Add(pk, sk[1:], stamp, []byte("uid"), pack(bytes.Repeat(data, 1000)))
	many := bytes.Clone(stamp)
	many[25] = 255
	f.Add(pk, sk, many, []byte("uid"), pack(data))
	f.Fuzz(func(t *testing.T, pk, sk, stamp, uid, packed []byte) {
		it := keys(pk, sk)
		it[attrVersion], it[attrUid], it[attrData] = binaryValue(stamp), binaryValue(uid), binaryValue(packed)
		k, bad := l.keyOf(it)
		h, err := l.head(it)
		var got *resourcepb.Resource
		if err == nil {
			if h.ring.parts > maxParts {
				t.Fatalf("%d parts", h.ring.parts)
			}
			got, err = h.decode(h.packedData)
		}
		var damaged *storage.DamagedError
		switch {
		case err == nil && (key.Of(got.GetId()) != k || bad != nil || got.GetId().GetUid() != string(uid)):
			t.Errorf("%v holds %v", k, got)
		case err != nil && bad == nil && (!errors.As(err, &damaged) || key.Of(damaged.ID) != k):
			t.Errorf("%v: %v, expected a DamagedError", k, err)
		}
		if data, err := unpack(packed); err == nil && len(data) > max(maxInflatedSize, len(packed)) {
			t.Errorf("%d bytes become %d", len(packed), len(data))
		}
	})
}

// Decoding accepts or refuses a cursor and a continue token of any content without a failure.
func FuzzTokens(f *testing.F) {
	var src streams.Source
	at, err := src.Decode([]byte("\x05arn:x\xa4\x8b\xb0\x99\x09\x07shard-1\x0217\x07shard-2\x01$"))
	if err != nil {
		f.Fatal(err)
	}
	after := key.Key{Group: "g", Kind: "k", Partition: "p", Name: "a"}
	filter := key.Filter{Group: "g", Kind: "k", Partition: "*"}
	prefix, _ := filter.Prefix()
	f.Add(at.Encode())
	f.Add([]byte("\x01\x00\bg\x00k\x00\x00p\x00\x99\t\ashard-2\x01$"))
	f.Add((&listing{filter: filter, after: &after, at: at}).encode())
	f.Add([]byte{})
	f.Add([]byte{1, 9, 4, 0, 0, 0, 0, 0})
	f.Add([]byte("\x01\x01\x08a\x00b\x00c\x00d\x00e\x00"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if _, err := src.Decode(payload); err != nil && !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a cursor of %q: %v", payload, err)
		}
		l := &listing{filter: filter}
		if err := l.decode(payload); err != nil {
			if !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("a continue token of %q: %v", payload, err)
			}
			return
		}
		if !bytes.HasPrefix(l.after.Bytes(), prefix) { // a page may end after a key that does not match
			t.Errorf("a continue token of %q continues after %v, which is outside of the list", payload, l.after)
		}
		if l.consistency != storage.EventualConsistency && l.consistency != storage.StrongConsistency {
			t.Errorf("a continue token of %q has the consistency %v", payload, l.consistency)
		}
		if _, err := src.Decode(src.Encode(l.at)); err != nil {
			t.Errorf("a continue token of %q makes pages with an invalid cursor: %v", payload, err)
		}
	})
}

// An error about a URL contains no text that may be a credential in the wrong place.
func FuzzURL(f *testing.F) {
	f.Add("dynamodb://key:", "", "@table/prefix")
	f.Add("dynamodb://key:1?", "", "@table")
	f.Add("dynamodb://table/p?endpoint=http://key:", "", "@localhost:8000")
	f.Add("dynamodb://table/p?endpoint=http://key:", "%zz", "@localhost:8000&region=x")
	f.Fuzz(func(t *testing.T, before, inside, after string) {
		const secret = "hunter2hunter2"
		u, err := url.Parse(before + secret + inside + after)
		if err != nil {
			return
		}
		password, _ := u.User.Password()
		endpoint, err := url.Parse(u.Query().Get("endpoint"))
		inner := ""
		if err == nil {
			inner, _ = endpoint.User.Password()
		}
		unescaped := u.User == nil && strings.Contains(u.Host, ":") && strings.Contains(u.RequestURI(), "@")
		if !strings.Contains(password+inner, secret) && !unescaped {
			return
		}
		_, _, err = parseURL(u)
		if !errors.Is(err, storage.ErrInvalid) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, expected ErrInvalid without the password", u, err)
		}
	})
}
