package sqlite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// A scan of keys alone ends at a number of bytes as one of resources does, now and at a revision, and what is left of it is read on.
func TestScanOfKeysIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	part := strings.Repeat("k", 250)
	const size = 5 * 250
	var ops []storage.Op
	const keys = driver.PageBytes/size + 100
	for i := range keys {
		res := resource(fmt.Sprintf("%s%05d", part[5:], i), 1)
		res.Id.Type.Group, res.Id.Type.Kind, res.Id.Tenancy.Partition, res.Id.Tenancy.Namespace = part, part, part, part
		if ops = append(ops, storage.Op{Write: res}); len(ops) == maxOps || i == keys-1 {
			if _, err := s.Commit(t.Context(), ops); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
	h, _ := storage.As[storage.Historian](s)
	_, newest, err := h.Revisions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range []int64{0, newest} {
		read := 0
		opts := storage.ScanOptions{KeysOnly: true, Count: true, Revision: revision}
		for span, more := (storage.Span{}), true; more; {
			scan, err := h.Scan(t.Context(), span, opts)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(scan.Records); n*size > driver.PageBytes+size {
				t.Errorf("one scan holds %d keys of %d bytes, expected about %d bytes at most", n, size, driver.PageBytes)
			}
			if scan.Count != int64(keys-read) {
				t.Errorf("%d keys are counted after %d of %d", scan.Count, read, keys)
			}
			read += len(scan.Records)
			span, more = scan.Rest, scan.More
		}
		if read != keys {
			t.Errorf("%d keys were read, expected %d", read, keys)
		}
	}
}
