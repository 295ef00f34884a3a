package etcd

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
	"testing"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
)

// clean turns any text into a legal part of a key or prefix.
func clean(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "\u00e9"), "\x00", "") }

// Keys of two stores never coincide. Keys of one store keep their order, parse to the same key, and are in the range of their filter.
func FuzzKeys(f *testing.F) {
	f.Add("a", "g", "k", "p", "n", "name", "a", "g", "k", "p", "n", "name")
	f.Add("a", "g", "k", "", "", "name", "a/b", "", "", "", "", "")
	f.Add("a", "g", "k", "p", "n", "b", "a", "g", "k", "p", "n", "b\x01")
	f.Fuzz(func(t *testing.T, prefix1, g1, k1, p1, n1, name1, prefix2, g2, k2, p2, n2, name2 string) {
		prefix1, prefix2 = strings.Trim(clean(prefix1), "/"), strings.Trim(clean(prefix2), "/")
		one, two := newLayout(prefix1), newLayout(prefix2)
		a := key.Key{Group: clean(g1), Kind: clean(k1), Partition: clean(p1), Namespace: clean(n1), Name: clean(name1)}
		b := key.Key{Group: clean(g2), Kind: clean(k2), Partition: clean(p2), Namespace: clean(n2), Name: clean(name2)}
		if got, err := one.parse(one.resource(a)); err != nil || got != a {
			t.Errorf("%v parses as %v, %v", a, got, err)
		}
		if bytes.Compare(one.resource(a), one.resource(b)) != a.Compare(b) {
			t.Errorf("%v and %v have another order in etcd", a, b)
		}
		if prefix1 != prefix2 {
			from, to := two.keyRange(&key.Filter{Group: "*", Kind: "*", Partition: "*", Namespace: "*"})
			if at := one.resource(a); bytes.Compare(at, from) >= 0 && bytes.Compare(at, to) < 0 {
				t.Errorf("%q of the store %q is in the range of the store %q", at, prefix1, prefix2)
			}
			if _, err := two.parse(one.resource(a)); err == nil {
				t.Errorf("%v of the store %q parses in the store %q", a, prefix1, prefix2)
			}
		}
		filter := key.Filter{Group: a.Group, Kind: a.Kind, Partition: "*", Namespace: a.Namespace, NamePrefix: a.Name}
		from, to := one.keyRange(&filter)
		if at := one.resource(b); filter.Match(&b) && (bytes.Compare(at, from) < 0 || bytes.Compare(at, to) >= 0) {
			t.Errorf("%v matches %+v and is not in its range", b, filter)
		}
	})
}

// A value decodes to a resource of its key, or to a DamagedError with the key and a version for its repair.
func FuzzValue(f *testing.F) {
	l := newLayout("prefix")
	res := resource("a", "uid", nil)
	data, err := codec.Encode(res)
	if err != nil {
		f.Fatal(err)
	}
	at := l.resource(key.Of(res.Id))
	f.Add(at, append(appendHeader(nil, token{1, 2}), data...))
	f.Add(at, appendHeader(nil, token{}))
	f.Add(at, []byte{})
	f.Add(at, append([]byte{9}, data...))
	f.Add(at[1:], data)
	f.Fuzz(func(t *testing.T, at, value []byte) {
		k, res, err := l.decode(&mvccpb.KeyValue{Key: at, Value: value, ModRevision: 5})
		var damaged *storage.DamagedError
		switch {
		case err == nil:
			if b, ok := l.parseVersion(k, res.GetId().GetUid(), res.GetVersion()); !bytes.Equal(l.resource(key.Of(res.GetId())), at) || !ok || b.rev != 5 {
				t.Errorf("%q decodes to %v", at, res)
			}
		case errors.As(err, &damaged):
			if b, ok := l.parseVersion(k, "any", damaged.Version); key.Of(damaged.ID) != k || !ok || b.rev != 5 {
				t.Errorf("%q: %v, with version %q", at, err, damaged.Version)
			}
		default:
			if _, bad := l.parse(at); bad == nil {
				t.Errorf("%q: %v, expected a DamagedError", at, err)
			}
		}
	})
}

// An owner entry parses to the child in its key, or to an error.
func FuzzOwnerEntry(f *testing.F) {
	l := newLayout("prefix")
	child := resource("a", "uid", nil)
	f.Add(l.entryKey([16]byte{}, key.Of(child.Id)), entryValue(child.Id))
	f.Add([]byte("x"), []byte{2})
	f.Fuzz(func(t *testing.T, at, value []byte) {
		id, _, err := l.parseEntry(&mvccpb.KeyValue{Key: at, Value: value})
		if err == nil && !bytes.HasSuffix(at, key.Of(id).Bytes()) {
			t.Errorf("the owner entry %q, %q has the child %v", at, value, id)
		}
	})
}

// Each accepted version text is the text that version returns.
func FuzzVersion(f *testing.F) {
	l := newLayout("prefix")
	k := key.Key{Group: "g", Kind: "k", Name: "a"}
	f.Add(l.version(k, "uid", base{rev: 3}))
	f.Add(l.version(k, "", base{rev: 3}))
	f.Add(l.version(k, "uid", base{rev: 3, entry: &ownerEntry{owner: [16]byte{1}}}))
	f.Add(l.version(k, "uid", base{rev: 3}) + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		b, ok := l.parseVersion(k, "uid", text)
		if ok && l.version(k, "uid", b) != text && l.version(k, "", b) != text {
			t.Errorf("%q parses as %+v", text, b)
		}
	})
}

// A cursor of any content decodes or fails with ErrInvalid, and no bound of a list extends beyond its filter.
func FuzzTokens(f *testing.F) {
	c := &conn{layout: newLayout("prefix")}
	var at source
	filter := key.Filter{Group: "g", Kind: "k", Partition: "*", Namespace: "*"}
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x07g\x00k\x00\x00\x00a\x00"))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 7})
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x07g\x00k\x00\x00\x00a"))
	f.Add([]byte{0xff, 0, 0, 0, 0, 0, 0, 7})
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, err := at.Decode(payload)
		switch {
		case err != nil && !errors.Is(err, storage.ErrInvalid):
			t.Errorf("a cursor of %q: %v", payload, err)
		case err == nil && p.rev <= 0:
			t.Errorf("a cursor of %q is %+v", payload, p)
		}
		if err == nil {
			if again, err := at.Decode(at.Encode(p)); err != nil || again != p {
				t.Errorf("%+v decodes as %+v, %v", p, again, err)
			}
		}
		l := newListing(c, &filter, storage.StrongConsistency)
		from, end := l.next, l.end
		l = newListingWithin(c, &filter, payload, nil, storage.StrongConsistency)
		ahead := bytes.Compare(l.next, from) >= 0 && bytes.Compare(l.next, c.layout.within(payload)) >= 0
		if empty := bytes.Compare(l.next, end) >= 0; !ahead && !empty || !bytes.Equal(l.end, end) {
			t.Errorf("a list from %q on has the range %q to %q", payload, l.next, l.end)
		}
	})
}

// No error about a URL contains its password, even if the password is not escaped.
func FuzzURL(f *testing.F) {
	f.Add("etcd://user:", "", "@host:2379/prefix")
	f.Add("etcds://user:", "%2F", "@one,two:1/p?ca=x&cert=y")
	f.Add("etcd://user:1?", "", "@host/p")
	f.Add("etcd://user:1/", "", "@host/p#x")
	f.Add("etcd://user:", ",", "@:0/p?timeout=x")
	f.Fuzz(func(t *testing.T, before, inside, after string) {
		const secret = "hunter2hunter2"
		u, err := url.Parse(before + secret + inside + after)
		if err != nil || !isPassword(u, secret) || strings.Contains(after, "password-file") {
			return
		}
		got, err := parseURL(u)
		switch {
		case err == nil && (len(got.endpoints) == 0 || got.options.Prefix == "" || (got.user == "") != (got.password == "")):
			t.Errorf("%s parses as %+v", u, got)
		case err != nil && !errors.Is(err, storage.ErrInvalid):
			t.Errorf("%s: %v, expected ErrInvalid", u, err)
		case err != nil && strings.Contains(err.Error(), secret):
			t.Errorf("the error contains the password: %v", err)
		}
	})
}

// isPassword reports whether a text is part of the password of a URL, even if a / or ? in the password is not escaped.
func isPassword(u *url.URL, text string) bool {
	password, _ := u.User.Password()
	return strings.Contains(password, text) || u.User == nil && strings.Contains(u.Host, ":") && strings.Contains(u.RequestURI(), "@")
}
