package postgres

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// clean turns any text into a legal part of a key.
func clean(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "\u00e9"), "\x00", "") }

// like is LIKE on bytes: a % matches any bytes, a _ any one byte, and a \ escapes both.
func like(text, pattern []byte) bool {
	if len(pattern) == 0 {
		return len(text) == 0
	}
	switch pattern[0] {
	case '%':
		for i := range len(text) + 1 {
			if like(text[i:], pattern[1:]) {
				return true
			}
		}
		return false
	case '_':
		return len(text) > 0 && like(text[1:], pattern[1:])
	case '\\':
		pattern = pattern[1:]
	}
	return len(text) > 0 && len(pattern) > 0 && text[0] == pattern[0] && like(text[1:], pattern[1:])
}

// The range and the pattern of a list match exactly the keys that the filter matches.
func FuzzListArguments(f *testing.F) {
	f.Add("g", "k", "p", "n", "a", "g", "k", "p", "n", "ab", byte(3))
	f.Add("g", "k%", "_", "\\", "%", "g", "k%", "x", "\\", "%a", byte(2))
	f.Add("g", "k", "p", "n", "", "g\x01", "k", "", "", "a", byte(15))
	f.Fuzz(func(t *testing.T, g1, k1, p1, n1, prefix, g2, k2, p2, n2, name string, wild byte) {
		filter := key.Filter{Group: clean(g1), Kind: clean(k1), Partition: clean(p1), Namespace: clean(n1), NamePrefix: clean(prefix)}
		for i, unit := range []*string{&filter.Namespace, &filter.Partition, &filter.Kind, &filter.Group} {
			if wild>>i&1 == 1 && (unit != &filter.Group || filter.Kind == storage.Wildcard) {
				*unit = storage.Wildcard
			}
		}
		k := key.Key{Group: clean(g2), Kind: clean(k2), Partition: clean(p2), Namespace: clean(n2), Name: clean(name)}
		if len(k.Bytes()) > 100 {
			return // like is slow
		}
		arguments := listArguments(&filter)
		from, to, pattern := string(arguments[0].([]byte)), arguments[1].([]byte), arguments[2].([]byte)
		at := k.Bytes()
		found := string(at) >= from && (to == nil || string(at) < string(to)) && (pattern == nil || like(at, pattern))
		if found != filter.Match(&k) {
			t.Errorf("%v matches %+v: %v, and matches %q: %v", k, filter, filter.Match(&k), arguments, found)
		}
	})
}

// A cursor of any content is decoded or refused; an encoded position is restored.
func FuzzCursor(f *testing.F) {
	var s source
	for _, p := range []position{{revision: 7}, {revision: 7, index: 3, aboveFrontier: []numberRange{{7, 9}, {11, 11}}}} {
		f.Add(s.Encode(p))
	}
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x01"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, err := s.Decode(payload)
		if err != nil {
			if !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("%q: %v, expected ErrInvalid", payload, err)
			}
			return
		}
		if p.revision < 0 || p.index < 0 {
			t.Errorf("%q is %+v", payload, p)
		}
		last := int64(-1)
		for _, s := range p.aboveFrontier {
			if s.from <= last || s.to < s.from {
				t.Errorf("%q is %+v", payload, p)
			}
			last = s.to
		}
		again, err := s.Decode(s.Encode(p))
		if err != nil || compare(&again, &p) != 0 || again.tokenPrefix != p.tokenPrefix || len(again.aboveFrontier) != len(p.aboveFrontier) {
			t.Errorf("%+v was restored as %+v, %v", p, again, err)
		}
	})
}

// Only a text from versionText is a version.
func FuzzVersion(f *testing.F) {
	f.Add(versionText(make([]byte, versionSize)))
	f.Add(versionText(make([]byte, versionSize)) + "\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if version := versionBytes(text); len(version) > 0 && versionText(version) != text {
			t.Errorf("%q is accepted as %q", text, versionText(version))
		}
	})
}

// An error about a URL never contains its password, escaped or not, or the password of a URL in a parameter.
func FuzzURL(f *testing.F) {
	f.Add("postgres://user:", "", "@host:5432/db?schema=s")
	f.Add("postgres://user:", "%2F", "@one,two:1/db?sslmode=nonsense")
	f.Add("postgres://user:1?", "", "@host/db")
	f.Add("postgres://user:1/", "", "@host/db#x")
	f.Add("postgres://host/db?password=", "", "&sslmode=x")
	f.Add("postgres://host/db?password=a'", "\\", "&port=x")
	f.Add("postgres://host/db?sslpassword=", "", "&connect_timeout=x")
	f.Add("postgres://host/db?replica=postgres://user:", "", "%40host/db%3Fa=b")
	f.Add("postgres://host/db?listen=postgres://user:1%3F", "", "%40host/db")
	f.Add("postgres://user:", " ", "@host:port/db")
	f.Fuzz(func(t *testing.T, before, inside, after string) {
		const secret = "hunter2hunter2"
		u, err := url.Parse(before + secret + inside + after)
		if err != nil || !isPassword(u, secret) || strings.Contains(u.RawQuery, "service") || strings.Contains(u.RawQuery, "file") {
			return
		}
		got, err := parseURL(u)
		switch {
		case err == nil && (got.pool == nil || got.opts.Schema == ""):
			t.Errorf("%s is accepted as %+v", u, got)
		case err != nil && !errors.Is(err, storage.ErrInvalid):
			t.Errorf("%s: %v, expected ErrInvalid", u, err)
		case err != nil && strings.Contains(err.Error(), secret):
			t.Errorf("%s: the error contains the password: %v", u, err)
		}
	})
}

// isPassword reports whether a text is a password of a URL, or follows one because of an unescaped / or ? in it.
func isPassword(u *url.URL, text string) bool {
	password, _ := u.User.Password()
	q := u.Query()
	for _, inner := range []string{q.Get("replica"), q.Get("listen")} {
		if v, err := url.Parse(inner); err == nil && v.User != nil && isPassword(v, text) {
			return true
		}
	}
	return strings.Contains(password+q.Get("password")+q.Get("sslpassword"), text) ||
		u.User == nil && strings.Contains(u.Host, ":") && strings.Contains(u.RequestURI(), "@")
}
