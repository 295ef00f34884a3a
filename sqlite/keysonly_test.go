package sqlite

import (
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
	past "github.com/ashlar-dev/storage/history"
)

// A scan of many keys ends at a number of bytes, as one of resources does.
func TestKeyPagesAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	const keys = 10_000
	for i := 0; i < keys; {
		var ops []storage.Op
		for ; i < keys && len(ops) < s.MaxOps(); i++ {
			ops = append(ops, storage.Op{Write: resource(fmt.Sprintf("%05d", i), int64(i))})
		}
		if _, err := s.Commit(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	}
	h, _ := storage.As[past.Historian](storage.Backend(s))
	scan, err := h.Scan(t.Context(), past.Span{}, past.ScanOptions{KeysOnly: true, Count: true})
	if err != nil || !scan.More || scan.Count != keys || len(scan.Records) == 0 {
		t.Errorf("%d of %d records, more is %v: %v", len(scan.Records), scan.Count, scan.More, err)
	}
}
