// Package token attacks the continue tokens of listings that are read from history. Tokens are not signed, so a caller can forge a
// token if the format is known. A forged token may return only resources that the caller could have listed, and must not keep the
// store busy.
package token

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Backend is the backend under attack.
type Backend interface {
	storage.Backend
	storage.Pager
}

// timeout bounds the work of the store on a forged token, on a busy machine. It is less than the time that calls spend on retries.
const timeout = 15 * time.Second

// Run attacks a new, empty store. other is another store of the same database, and empty too.
func Run(t *testing.T, b, other Backend) {
	t.Helper()
	seen := map[string]bool{} // the versions of the resources that the filter selects
	for i := range 6 {
		res := fixture.Write(t, b, fixture.Resource(fmt.Sprint("name-", i), "v"))
		fixture.Write(t, other, fixture.Resource(fmt.Sprint("name-", i), "v"))
		seen[res.Version] = true
		fixture.Write(t, b, fixture.Resource(fmt.Sprint("other-", i), "v"))
		fixture.Write(t, b, fixture.Resource(fmt.Sprint("a-", i), "v"))
	}
	first, err := b.ListPage(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "name-", storage.ListOptions{Limit: 2})
	if err != nil || len(first.Resources) != 2 {
		t.Fatalf("the first page: %v, %v", first, err)
	}
	good := parse(t, first.Continue)
	list := func(token string) (storage.Page, error) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		page, err := b.ListPage(ctx, fixture.AllTypes, fixture.AllTenancies, "name-", storage.ListOptions{Limit: 10, Continue: token})
		if ctx.Err() != nil {
			t.Errorf("a forged token kept the store busy for %v", timeout)
		}
		return page, err
	}
	if page, err := list(good.token()); err != nil || len(page.Resources) != 4 {
		t.Fatalf("the token that was taken apart: %v, %v", page.Resources, err)
	}
	for what, forged := range forgeries(good, first.Resources[0].Id) {
		page, err := list(forged.token())
		if err != nil && !errors.Is(err, storage.ErrInvalid) && !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("%s: %v", what, err)
		}
		for _, res := range page.Resources {
			if !seen[res.Version] {
				t.Errorf("%s shows %v", what, res.Id.Name)
			}
		}
	}
	_, err = other.ListPage(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "name-", storage.ListOptions{Continue: good.token()})
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("the token of another store: %v", err)
	}
}

// forgeries returns tokens that are well formed, or almost.
func forgeries(good token, id *resourcepb.ID) map[string]token {
	all := map[string]token{}
	forge := func(what string, change func(f *token)) {
		f := good
		f.position, f.after = bytes.Clone(good.position), bytes.Clone(good.after)
		change(&f)
		all[what] = f
	}
	for what, k := range map[string]key.Key{
		"the first key":           {Group: "\x01", Kind: "\x01", Name: "\x01"},
		"the last key":            {Group: "\U0010FFFF", Kind: "\U0010FFFF", Partition: "\U0010FFFF", Namespace: "\U0010FFFF", Name: "\U0010FFFF"},
		"a key before the filter": {Group: id.Type.Group, Kind: id.Type.Kind, Partition: id.Tenancy.Partition, Namespace: id.Tenancy.Namespace, Name: "a-1"},
		"a key after the filter":  {Group: id.Type.Group, Kind: id.Type.Kind, Partition: id.Tenancy.Partition, Namespace: id.Tenancy.Namespace, Name: "other-1"},
		"a long key":              {Group: "g", Kind: "k", Name: strings.Repeat("n", 255)},
		"a key that is too long":  {Group: "g", Kind: "k", Name: strings.Repeat("n", 1<<16)},
	} {
		forge(what, func(f *token) { f.after = k.Bytes() })
	}
	for what, after := range map[string]string{
		"no key": "", "half a key": string(good.after[:3]), "a key with a part too many": string(good.after) + "\x00x", "a key that is not text": "\xff\x00\xff\x00\x00\x00\xfe",
	} {
		forge(what, func(f *token) { f.after = []byte(after) })
	}
	for what, position := range map[string][]byte{
		"no position": {}, "a position of nothing": make([]byte, len(good.position)), "a long position": make([]byte, 1<<16),
		"the last position": bytes.Repeat([]byte{0xff}, len(good.position)), "the highest number": append([]byte{0x7f}, bytes.Repeat([]byte{0xff}, len(good.position)-1)...),
		"the highest varint":         binary.AppendUvarint(nil, math.MaxInt64),
		"a position with more of it": append(bytes.Clone(good.position), good.position...),
	} {
		forge(what, func(f *token) { f.position = position })
	}
	for i := range good.position {
		forge(fmt.Sprintf("a position without its end from %d on", i), func(f *token) { f.position = f.position[:i] })
		for bit := range 8 {
			forge(fmt.Sprintf("a position with bit %d of byte %d turned", bit, i), func(f *token) { f.position[i] ^= 1 << bit })
		}
	}
	for _, revision := range []uint64{1, 1 << 61, math.MaxInt64, math.MaxUint64} {
		forge(fmt.Sprintf("revision %d", revision), func(f *token) { f.revision = revision })
	}
	for _, size := range []uint64{0, 1, uint64(len(good.position)) + 1, 1 << 40, math.MaxInt64, math.MaxUint64} {
		forge(fmt.Sprintf("a position with the stated size %d", size), func(f *token) { f.size = &size })
	}
	return all
}

// token is a decoded continue token.
type token struct {
	store           cursor.StoreID
	sum             []byte // of the filter
	revision        uint64
	size            *uint64 // the stated size of the position, if it is not the real one
	position, after []byte
}

// parse decodes a token, as the driver tier encodes it.
func parse(t *testing.T, text string) token {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < 17 {
		t.Fatalf("the token %q: %v", text, err)
	}
	f := token{store: cursor.StoreID(raw[1:17])}
	rest, err := cursor.Decode(cursor.Revision, f.store, text)
	if err != nil {
		t.Fatal(err)
	}
	f.sum, rest = rest[:8], rest[8:]
	revision, n := binary.Uvarint(rest)
	rest = rest[n:]
	size, n := binary.Uvarint(rest)
	f.revision, f.position, f.after = revision, rest[n:n+int(size)], rest[n+int(size):]
	return f
}

// token encodes a token.
func (f *token) token() string {
	payload := binary.AppendUvarint(bytes.Clone(f.sum), f.revision)
	size := uint64(len(f.position))
	if f.size != nil {
		size = *f.size
	}
	payload = append(binary.AppendUvarint(payload, size), f.position...)
	return cursor.Encode(cursor.Revision, f.store, append(payload, f.after...))
}
