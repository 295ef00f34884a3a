package sqlite

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// Different owners have different encodings, although the uid follows the key.
func FuzzOwners(f *testing.F) {
	f.Add("g", "k", "p", "n", "ab", "c", "g", "k", "p", "n", "a", "bc")
	f.Fuzz(func(t *testing.T, g1, k1, p1, n1, name1, uid1, g2, k2, p2, n2, name2, uid2 string) {
		clean := func(s string) string { return strings.ReplaceAll(s, "\x00", "") }
		a := key.Key{Group: clean(g1), Kind: clean(k1), Partition: clean(p1), Namespace: clean(n1), Name: clean(name1)}
		b := key.Key{Group: clean(g2), Kind: clean(k2), Partition: clean(p2), Namespace: clean(n2), Name: clean(name2)}
		same := a == b && clean(uid1) == clean(uid2)
		if bytes.Equal(ownerBytes(a.ID(clean(uid1), "")), ownerBytes(b.ID(clean(uid2), ""))) != same {
			t.Errorf("%v with uid %q and %v with uid %q have the same encoding", a, uid1, b, uid2)
		}
	})
}

// A URL has a path or is refused. Errors never contain the password.
func FuzzURL(f *testing.F) {
	f.Add("sqlite://user:", "", "@/x.db")
	f.Add("sqlite://user:1?", "", "@/x.db")
	f.Add("sqlite:///a/", "%2F", "x.db?timeout=1s")
	f.Add("sqlite:", "%zz", "")
	f.Fuzz(func(t *testing.T, before, inside, after string) {
		const secret = "hunter2hunter2"
		u, err := url.Parse(before + secret + inside + after)
		if err != nil {
			return
		}
		path, _, err := parseURL(u)
		if err == nil {
			if path == "" || strings.Contains(path, "\x00") || u.User != nil {
				t.Errorf("%s has path %q", u, path)
			}
			return
		}
		password, _ := u.User.Password()
		unescaped := u.User == nil && strings.Contains(u.Host, ":") && strings.Contains(u.RequestURI(), "@")
		if !errors.Is(err, storage.ErrInvalid) || strings.Contains(err.Error(), secret) && (strings.Contains(password, secret) || unescaped) {
			t.Errorf("%s: got error %v, expected ErrInvalid without the password", u, err)
		}
	})
}
