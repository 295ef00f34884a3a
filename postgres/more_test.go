//go:build integration

package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	past "github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/codec"
)

// TestScanMore scans exactly up to each limit of a page, with no further resource and with one more. Only the latter sets More, now
// and at an earlier revision.
func TestScanMore(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx) // with three resources
	historian, _ := storage.As[past.Historian](b)
	// As many as a page of keys alone contains.
	_, err := b.handle.database.main.Exec(ctx, b.handle.database.sql.withNames(`
insert into $resources (key, uid, version, group_version, data, created, writes, modified, modified_place)
select 'k' || '\x00'::bytea || 'Kind' || '\x000000'::bytea || convert_to(lpad(n::text, 9, '0'), 'UTF8'), 'u', 'v', 'v1', '', 2, 1, 2, 0
from generate_series(1, $1::int) n`), rangeRows)
	if err != nil {
		t.Fatal(err)
	}
	of := func(group string) past.Range {
		id := named("", "").Id
		id.Type.Group, id.Type.Kind = group, ""
		to := named("", "").Id
		to.Type.Group, to.Type.Kind = group+"\x01", ""
		return past.Range{From: id, To: to}
	}
	check := func(what string, group string, opts past.ScanOptions, want int, more bool) {
		t.Helper()
		scan, err := historian.Scan(ctx, of(group), opts)
		if err != nil || len(scan.Records) != want || scan.More != more {
			t.Errorf("%s: %d records, more: %v, %v; expected %d, more: %v", what, len(scan.Records), scan.More, err, want, more)
		}
		if !more {
			return
		}
		rest, err := historian.Scan(ctx, scan.Rest, past.ScanOptions{Limit: 1, KeysOnly: true, Revision: opts.Revision})
		if err != nil || len(rest.Records) == 0 {
			t.Errorf("%s: a scan of the rest returned %v, %v, expected a record", what, rest.Records, err)
		}
	}
	size := 0
	all, err := historian.Scan(ctx, of("g"), past.ScanOptions{})
	if err != nil || len(all.Records) != 3 {
		t.Fatalf("%d records: %v", len(all.Records), err)
	}
	for _, r := range all.Records {
		data, err := codec.Encode(r.Resource)
		if err != nil {
			t.Fatal(err)
		}
		size += len(data)
	}
	if _, err := b.WriteCAS(ctx, named("z", "")); err != nil {
		t.Fatal(err)
	}
	for at, more := range map[int64]bool{all.Revision: false, 0: true} {
		check(fmt.Sprint("bytes at ", at), "g", past.ScanOptions{Bytes: size, Revision: at}, 3, more)
		check(fmt.Sprint("limit at ", at), "g", past.ScanOptions{Limit: 3, Revision: at}, 3, more)
	}
	check("all bytes", "g", past.ScanOptions{Bytes: size + 1}, 4, false)
	check("keys alone", "k", past.ScanOptions{KeysOnly: true}, rangeRows, false)
	other := named("z", "")
	other.Id.Type.Group = "k"
	if _, err := b.WriteCAS(ctx, other); err != nil {
		t.Fatal(err)
	}
	check("more keys alone", "k", past.ScanOptions{KeysOnly: true}, rangeRows, true)
}
