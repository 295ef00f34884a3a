//go:build integration

package postgres_test

import (
	"net/url"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestReplica reads from a standby that falls behind: its answers are used only while they are recent enough.
func TestReplica(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	pair := env.StartPostgresPair(t)
	schema := pair.Primary.Schema(t)
	proxy := faultproxy.New(t, pair.Standby.Addr)
	b := fixture.Open(t, pair.Primary.StoreURLIn(t, schema, "replica="+url.QueryEscape(pair.Standby.At(t, proxy.Addr()).URL)))
	other := fixture.Open(t, pair.Primary.StoreURLIn(t, schema))
	w := fixture.WatchAll(t, b)
	endOfSnapshot(t, w)
	standby := pair.Standby.Connect(t)
	read := func() string {
		t.Helper()
		res, err := b.Read(ctx, storage.EventualConsistency, fixture.Resource("one", "").Id)
		if err != nil {
			t.Fatal(err)
		}
		listed, err := b.List(ctx, storage.EventualConsistency, fixture.AllTypes, fixture.AllTenancies, "")
		if err != nil || len(listed) != 1 || !proto.Equal(listed[0], res) {
			t.Fatalf("list: %v, %v, read: %v", listed, err, res)
		}
		return res.Version
	}
	stored := fixture.Write(t, b, fixture.Resource("one", "v"))
	expect(t, "watch", w, stored)
	pair.CatchUp(t)
	if got := read(); got != stored.Version {
		t.Fatalf("read %s, expected %s", got, stored.Version)
	}
	// The standby is used when it has all that this handle has returned; if its answer is lost, the primary answers.
	trap := proxy.CutAnswer([]byte("one"))
	fixture.Eventually(t, "a read from the standby", func() bool {
		if got := read(); got != stored.Version {
			t.Fatalf("read %s, expected %s", got, stored.Version)
		}
		select {
		case <-trap.Sprung():
			return true
		default:
			return false
		}
	})

	// A standby that does not replay is skipped as soon as the handle knows of a newer state: by its own write, or by an event of
	// its watch.
	if _, err := standby.Exec(ctx, "select pg_wal_replay_pause()"); err != nil {
		t.Fatal(err)
	}
	stored = fixture.Write(t, b, stored)
	if got := read(); got != stored.Version {
		t.Errorf("after its own write: read %s, expected %s", got, stored.Version)
	}
	expect(t, "watch", w, stored)
	stored = fixture.Write(t, other, stored)
	expect(t, "watch", w, stored)
	if got := read(); got != stored.Version {
		t.Errorf("after an event: read %s, expected %s", got, stored.Version)
	}
	if _, err := standby.Exec(ctx, "select pg_wal_replay_resume()"); err != nil {
		t.Fatal(err)
	}
	pair.CatchUp(t)
	pair.Standby.Kill(t)
	if got := read(); got != stored.Version {
		t.Errorf("without the standby: read %s, expected %s", got, stored.Version)
	}
}
