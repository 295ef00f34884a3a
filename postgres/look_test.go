//go:build integration

package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	past "github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestLookIsFinal reads keys while an open session may have a lower number than a visible change. The visible state is not final
// yet, so the read waits.
func TestLookIsFinal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx)
	h := b.handle
	conn, other := acquire(t, ctx, h.database.main), acquire(t, ctx, h.database.main)
	first, second := key.Key{Group: "g", Kind: "Kind", Name: "first"}, key.Key{Group: "g", Kind: "Kind", Name: "second"}
	write := func(k key.Key) *resourcepb.Resource {
		t.Helper()
		stored, err := b.WriteCAS(ctx, &resourcepb.Resource{Id: k.ID("uid", "v1")})
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	only := func(ctx context.Context, k driver.Key, final bool) (found *driver.Version, revision int64, err error) {
		from := k.Bytes()
		page, err := h.ReadAt(ctx, &driver.HistoryQuery[position]{
			Consistency: storage.StrongConsistency, Final: final, Key: &k, From: from, To: append(from[:len(from):len(from)], 0), Limit: 1,
		}, func(v *driver.Version) error {
			found = v
			return nil
		})
		return found, h.RevisionOf(page.At), err
	}
	look := func(later bool) snapshot {
		t.Helper()
		snap, err := h.keys.readAttempt(ctx, conn.Conn(), [][]byte{first.Bytes(), second.Bytes(), []byte("nothing")})
		if err != nil || snap.notFinal != later || snap.versions["nothing"] != nil {
			t.Fatalf("found %v, later: %v, expected %v: %v", snap.versions, snap.notFinal, later, err)
		}
		return snap
	}
	execute := func(sql string) {
		t.Helper()
		if _, err := other.Exec(ctx, h.database.sql.withNames(sql)); err != nil {
			t.Fatal(err)
		}
	}
	one := write(first)
	before := look(false)
	if v := before.versions[string(first.Bytes())]; v == nil || string(v.Version) != one.Version || v.ModRevision != h.RevisionOf(before.at) || v.CreateRevision != v.ModRevision || v.Writes != 1 {
		t.Errorf("what was created is %+v, as of revision %d", v, h.RevisionOf(before.at))
	}
	execute("begin")
	execute(note)
	execute("select nextval($seq_name)")
	two := write(second)
	look(true)
	if v, _, err := only(ctx, second, false); err != nil || v == nil || string(v.Version) != two.Version {
		t.Errorf("the visible resource: %+v, %v", v, err)
	}
	brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if v, revision, err := only(brief, second, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a state that is not final was found as of revision %d: %+v, %v", revision, v, err)
	}
	h.keys.batch = batch.New(batch.Options[keyRequest]{}, func(_ context.Context, calls []*keyCall) {
		snap := look(true)
		if err := b.DeleteCAS(ctx, two.Id, two.Version); err != nil {
			t.Error(err)
		}
		execute("rollback")
		for _, c := range calls {
			c.Done(keyResult{snap.versions[string(c.Request.key)], snap.at, nil}, errNotFinal)
		}
	})
	if v, revision, err := only(ctx, second, true); err != nil || v != nil || revision <= h.RevisionOf(before.at) {
		t.Errorf("the resource deleted after the first attempt: %+v, as of revision %d: %v", v, revision, err)
	}
	h.keys = newKeyReader(h.keys.history)
	two = write(second)
	after := look(false)
	if v := after.versions[string(second.Bytes())]; v == nil || v.ModRevision != h.RevisionOf(after.at) || v.ModRevision <= h.RevisionOf(before.at) {
		t.Errorf("what was written behind the other session is %+v, as of revision %d", v, h.RevisionOf(after.at))
	}
	historian, _ := storage.As[past.Historian](b)
	end := second
	end.Name += "\x01"
	scan, err := historian.Scan(ctx, past.Range{From: second.ID("", ""), To: end.ID("", "")}, past.ScanOptions{KeysOnly: true, Count: true})
	if err != nil || len(scan.Records) != 1 || scan.Count != 1 || scan.Revision != h.RevisionOf(after.at) || scan.Records[0].Resource.Version != two.Version {
		t.Errorf("a scan of the key alone: %+v, %v", scan, err)
	}
}
