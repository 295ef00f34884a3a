//go:build integration

package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	past "github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/env"
)

// TestPresentIsNeverCompacted reads the present while a commit stalls. After the stall, and before the reader reads at the revision
// that was newest then, other sessions write and compact everything before. The present still exists; it is a newer one.
func TestPresentIsNeverCompacted(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"a span", "a key", "a swap"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			t.Cleanup(cancel)
			storeURL := env.Postgres(t).StoreURL(t)
			other := openHandle(t, ctx, storeURL)
			b, tr := openTraced(t, ctx, storeURL)
			historian, _ := storage.As[past.Historian](b)
			stalled := acquire(t, ctx, other.handle.database.main)
			execute := func(sql string) {
				t.Helper()
				if _, err := stalled.Exec(ctx, other.handle.database.sql.withNames(sql)); err != nil {
					t.Error(err)
				}
			}
			execute("begin")
			execute(note)
			execute("select nextval($seq_name)")
			stored, err := other.WriteCAS(ctx, named("one", "behind"))
			if err != nil {
				t.Fatal(err)
			}
			waits, forgotten := false, false
			sends := func(sql []string) {
				switch {
				case len(sql) == 2 && sql[0] == readCommitted && !waits: // it reads how far history is final
					waits = true
					execute("rollback")
				case waits && !forgotten && strings.Contains(sql[0], "repeatable read"):
					forgotten = true
					stored.Metadata["v"] = "later"
					if stored, err = other.WriteCAS(ctx, stored); err != nil {
						t.Error(err)
					}
					_, newest, err := other.handle.Revisions(ctx)
					if err == nil {
						err = other.handle.Compact(ctx, newest)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
			tr.sends.Store(&sends)
			one := key.Of(stored.Id)
			end := one
			end.Name += "\x01"
			var got *past.Record
			switch what {
			case "a swap":
				var swapped past.SwapResult
				swapped, err = historian.Swap(ctx, past.Swap{Write: named("one", "mine"), Expect: 1})
				got = swapped.Stored
			case "a key":
				got, err = only(historian.Scan(ctx, past.Range{From: one.ID("", ""), To: end.ID("", "")}, past.ScanOptions{}))
			default:
				got, err = only(historian.Scan(ctx, past.Range{}, past.ScanOptions{}))
			}
			tr.sends.Store(nil)
			if err != nil || !forgotten || got == nil || got.Resource.Version != stored.Version {
				t.Errorf("read %v, %v, expected %v; compacted meanwhile: %v", got, err, stored, forgotten)
			}
		})
	}
}

// only returns the single record of a scan.
func only(scan past.ScanResult, err error) (*past.Record, error) {
	if err != nil || len(scan.Records) != 1 {
		return nil, err
	}
	return &scan.Records[0], nil
}
