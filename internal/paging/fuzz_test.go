package paging

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/spill"
)

// A continue token of any content is a page of the listing, or refused as what it is.
func FuzzNext(f *testing.F) {
	filter := key.Filter{Group: "g", Kind: "k"}
	shelf := New(cursor.StoreID{1}, Options{})
	f.Cleanup(func() { _ = shelf.Close() })
	rows := spill.New(1 << 10)
	for _, record := range []string{"one", "two", "three"} {
		if err := rows.Append([]byte(record)); err != nil {
			f.Fatal(err)
		}
	}
	if err := rows.Seal(); err != nil {
		f.Fatal(err)
	}
	page, err := shelf.First(filter, "cursor", rows, 1)
	if err != nil {
		f.Fatal(err)
	}
	payload, err := cursor.Decode(cursor.Page, cursor.StoreID{1}, page.Continue)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(payload, 1)
	f.Add(append(payload[:24:24], 3), 1)    // inside a record
	f.Add(append(payload[:24:24], 0x7f), 1) // behind the end
	f.Add(append(payload[:24:24], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), 1)
	f.Add(payload[:10], 1)
	f.Fuzz(func(t *testing.T, payload []byte, limit int) {
		token := cursor.Encode(cursor.Page, cursor.StoreID{1}, payload)
		page, err := shelf.Next(filter, token, max(1, limit))
		if err != nil {
			if !errors.Is(err, storage.ErrInvalid) && !errors.Is(err, storage.ErrCompacted) {
				t.Errorf("%q: %v", payload, err)
			}
			return
		}
		for _, record := range page.Records {
			if s := string(record); s != "two" && s != "three" {
				t.Errorf("%q shows %q", payload, s)
			}
		}
		if len(page.Records) == 0 || page.Cursor != "cursor" {
			t.Errorf("%q shows %+v", payload, page)
		}
	})
}
