package inmem

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Any cursor and continue token is accepted or refused with the right error.
func FuzzTokens(f *testing.F) {
	b := New(nil)
	f.Cleanup(func() { _ = b.Close() })
	ctx := context.Background()
	typ, tenancy := storage.UnversionedType{Group: "g", Kind: "k"}, &resourcepb.Tenancy{}
	for _, name := range []string{"a", "b"} {
		if _, err := b.WriteCAS(ctx, &resourcepb.Resource{Id: key.Key{Group: "g", Kind: "k", Name: name}.ID("uid", "v1")}); err != nil {
			f.Fatal(err)
		}
	}
	first, err := b.ListPage(ctx, typ, tenancy, "", storage.ListOptions{Limit: 1})
	if err != nil {
		f.Fatal(err)
	}
	for kind, token := range map[cursor.Kind]string{cursor.Revision: first.Continue, cursor.Watch: first.Cursor} {
		payload, err := cursor.Decode(kind, b.handle.StoreID(), token)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	f.Add([]byte{})
	f.Add([]byte("0123456789abcdef"))
	f.Add([]byte("0123456789abcdef\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x00"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if w, err := b.WatchFrom(ctx, typ, tenancy, "", cursor.Encode(cursor.Watch, b.handle.StoreID(), payload)); err == nil {
			w.Close()
		} else if !errors.Is(err, storage.ErrInvalid) && !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("a cursor with payload %q: got error %v, expected ErrInvalid or ErrCompacted", payload, err)
		}
		_, err := b.ListPage(ctx, typ, tenancy, "", storage.ListOptions{Continue: cursor.Encode(cursor.Revision, b.handle.StoreID(), payload)})
		if err != nil && !errors.Is(err, storage.ErrInvalid) && !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("a continue token with payload %q: got error %v, expected ErrInvalid or ErrCompacted", payload, err)
		}
	})
}

// No error about a URL contains its password, even if the password is not escaped.
func FuzzURL(f *testing.F) {
	f.Add("mem://user:", "", "@name")
	f.Add("mem://user:1?", "", "@name")
	f.Add("mem://user:1/", "", "@name?create=off")
	f.Add("mem://user:", "%zz", "?history=x")
	f.Fuzz(func(t *testing.T, before, inside, after string) {
		const secret = "hunter2hunter2"
		u, err := url.Parse(before + secret + inside + after)
		if err != nil {
			return
		}
		b, err := Open(context.Background(), u)
		if err == nil {
			_ = b.Close()
			return
		}
		password, _ := u.User.Password()
		unescaped := u.User == nil && strings.Contains(u.Host, ":") && strings.Contains(u.RequestURI(), "@")
		refused := errors.Is(err, storage.ErrInvalid) || errors.Is(err, storage.ErrNoStore)
		if !refused || strings.Contains(err.Error(), secret) && (strings.Contains(password, secret) || unescaped) {
			t.Errorf("%s: got error %v, expected ErrInvalid or ErrNoStore without the password", u, err)
		}
	})
}
