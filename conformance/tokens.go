package conformance

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/cursor"
)

// pagingForged continues a listing with forged tokens. Tokens are not signed, so a caller who knows their format can forge one. A forged
// token may return only resources that the caller could have listed, and must not keep the store busy.
func pagingForged(s *suite) {
	matching := map[string]bool{} // the versions of the resources that match the prefix
	for i := range 6 {
		matching[s.create(fmt.Sprint("name-", i)).Version] = true
		s.create(fmt.Sprint("other-", i))
		s.create(fmt.Sprint("a-", i))
	}
	names := filter{anything, anywhere, "name-"}
	token := s.page(s.pager(), names, storage.ListOptions{Consistency: strong, Limit: 2}).Continue
	if token == "" {
		s.Fatal("the first of several pages has no continue token")
	}
	for what, forged := range forgedTokens(s, token) {
		ctx, cancel := context.WithTimeout(s.ctx, min(15*time.Second, s.timeout)) // less than calls spend on retries
		page, err := s.pager().ListPage(ctx, names.typ, names.tenancy, names.prefix, storage.ListOptions{Limit: 10, Continue: forged})
		if ctx.Err() != nil {
			s.Errorf("a token with %s keeps the store busy", what)
		}
		cancel()
		if err != nil && !errors.Is(err, storage.ErrInvalid) && !errors.Is(err, storage.ErrCompacted) {
			s.Errorf("ListPage with a token with %s: %v", what, err)
		}
		for _, res := range page.Resources {
			if !matching[res.Version] {
				s.Errorf("a page from a token with %s shows %s", what, res.Id.Name)
			}
		}
	}
}

// forgedTokens returns tokens that are well formed, or almost, with a description of each. Tokens of package driver/backend get a valid
// checksum.
func forgedTokens(s *suite, token string) map[string]string {
	s.Helper()
	forged := map[string]string{}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < 30 || cursor.Encode(cursor.Kind(raw[0]), cursor.StoreID(raw[1:17]), raw[17:len(raw)-4]) != token {
		return forgedTexts(token)
	}
	kind, store, sum, payload := cursor.Kind(raw[0]), cursor.StoreID(raw[1:17]), raw[17:25], raw[25:len(raw)-4]
	encode := func(what string, payload []byte) {
		forged[what] = cursor.Encode(kind, store, append(bytes.Clone(sum), payload...))
	}
	if kind != cursor.Revision { // the adapter's own format: each token may cost a request
		changeBits(payload, max(1, len(payload)/16), 1, encode)
		return forged
	}
	changeBits(payload, 1, 1, encode)
	revision, n := binary.Uvarint(payload)
	payload = payload[n:]
	size, n := binary.Uvarint(payload)
	position, after := payload[n:n+int(size)], payload[n+int(size):]
	parts := func(what string, revision, size uint64, position, after []byte) {
		encode(what, append(append(binary.AppendUvarint(binary.AppendUvarint(nil, revision), size), position...), after...))
	}
	for i, text := range []string{
		"", string(after[:3]), string(after) + "\x00x", "\xff\x00\xff\x00\x00\x00\xfe", string(keyWith("\x01", "\x01")), string(keyWith("\U0010FFFF", "\U0010FFFF")),
		string(key.Of(thingID("a-1")).Bytes()), string(key.Of(thingID("other-1")).Bytes()),
		string(keyWith("g", strings.Repeat("n", 255))), string(keyWith("g", strings.Repeat("n", 1<<16))),
	} {
		parts(fmt.Sprintf("key %d: %.30q", i, text), revision, size, position, []byte(text))
	}
	at := func(what string, position []byte) { parts(what, revision, uint64(len(position)), position, after) }
	changeBits(position, 1, 8, func(what string, changed []byte) { at("a position with "+what, changed) })
	for i, position := range [][]byte{
		make([]byte, len(position)), make([]byte, 1<<16), bytes.Repeat([]byte{0xff}, len(position)),
		append([]byte{0x7f}, bytes.Repeat([]byte{0xff}, len(position)-1)...), binary.AppendUvarint(nil, math.MaxInt64), append(bytes.Clone(position), position...),
	} {
		at(fmt.Sprintf("position %d: %.30x", i, position), position)
	}
	for _, n := range []uint64{0, 1, size + 1, 1 << 40, 1 << 61, math.MaxInt64, math.MaxUint64} {
		parts(fmt.Sprintf("revision %d", n), n, size, position, after)
		parts(fmt.Sprintf("a position with the stated size %d", n), revision, n, position, after)
	}
	return forged
}

// forgedTexts returns tokens of an unknown format: as text, and as base64 if that is what it is, single bits are changed, and the prefix of
// the listing is replaced by the one of other resources.
func forgedTexts(token string) map[string]string {
	forged := map[string]string{}
	forge := func(format string, data []byte, encode func([]byte) string) {
		changeBits(data, max(1, len(data)/500), 1, func(what string, changed []byte) { forged[format+" with "+what] = encode(changed) })
		for _, prefix := range []string{"other-", "a-", ""} {
			forged[fmt.Sprintf("%s with the prefix %q", format, prefix)] = encode(bytes.ReplaceAll(data, []byte("name-"), []byte(prefix)))
		}
	}
	forge("text", []byte(token), func(data []byte) string { return string(data) })
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
		if data, err := encoding.DecodeString(token); err == nil {
			forge("base64", data, encoding.EncodeToString)
		}
	}
	return forged
}

func keyWith(part, name string) []byte {
	return key.Key{Group: part, Kind: part, Partition: part, Namespace: part, Name: name}.Bytes()
}

// changeBits emits data without its end, and with single changed bits: of every step-th byte, 1 bit or all 8.
func changeBits(data []byte, step, bits int, emit func(what string, changed []byte)) {
	for i := 0; i < len(data); i += step {
		emit(fmt.Sprintf("its end from byte %d on missing", i), data[:i:i])
		for bit := range bits {
			changed := bytes.Clone(data)
			changed[i] ^= 1 << ((i + bit) % 8)
			emit(fmt.Sprintf("bit %d of byte %d changed", (i+bit)%8, i), changed)
		}
	}
}
