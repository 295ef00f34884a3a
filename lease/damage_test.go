package lease_test

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
)

// damage replaces the only resource of a kind in a SQLite file with an invalid encoding. The change is in the file's log, so watches return
// it.
func damage(t *testing.T, b storage.Backend, path, kind string) {
	t.Helper()
	k := sqlite3.Quote(key.Of(only(t, b, "lease", kind).GetId()).Bytes())
	db, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Exec(`
		BEGIN IMMEDIATE;
		INSERT INTO log (seq, tag, written, key, data) SELECT max(seq) + 1, 4711, max(written), ` + k + `, x'ff' FROM log;
		UPDATE resources SET (seq, tag) = (SELECT max(seq), 4711 FROM log), data = x'ff' WHERE key = ` + k + `;
		COMMIT`); err != nil {
		t.Fatal(err)
	}
}

// A damaged record makes lists and watches fail, but other leases still end. A lease whose record is damaged has lost its time to live and
// ends when it is revoked.
func TestDamagedRecordDoesNotBlockOtherLeases(t *testing.T) {
	t.Parallel()
	testDamagedRecords(t, func(t *testing.T) (storage.Backend, func(kind string)) {
		path := filepath.Join(t.TempDir(), "store.db")
		b := fixture.Open(t, "sqlite:"+path)
		return b, func(kind string) { damage(t, b, path, kind) }
	})
}

// testDamagedRecords damages the records of leases, each in its own store.
func testDamagedRecords(t *testing.T, open func(t *testing.T) (b storage.Backend, damage func(kind string))) {
	for _, kind := range []string{"Lease", "Renewal"} {
		for name, noKeeper := range map[string]bool{"with a keeper": false, "without a keeper": true} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				b, damage := open(t)
				k := keeper(t, b)
				grantAndAttach(t, b, k, "damaged", time.Hour)
				if noKeeper {
					k.Close()
				}
				damage(kind)
				if noKeeper {
					k = keeper(t, b)
				}
				release := k.Extend("other") // the machine may be slow
				grantAndAttach(t, b, k, "other", time.Second)
				release()
				fixture.Eventually(t, "the other lease ends", func() bool { return missing(t, b, "other") })
				if missing(t, b, "damaged") {
					t.Error("a lease ended early")
				}
				if err := k.Revoke(fixture.Context(t), "damaged"); err != nil {
					t.Error(err)
				}
				if !missing(t, b, "damaged") {
					t.Error("the attached resource outlived its lease")
				}
			})
		}
	}
}

// grantAndAttach grants a lease and attaches a resource of the same name to it.
func grantAndAttach(t *testing.T, b storage.Backend, k *lease.Keeper, name string, ttl time.Duration) {
	t.Helper()
	if err := attach(fixture.Context(t), b, grant(t, k, name, ttl), name); err != nil {
		t.Fatal(err)
	}
}

// A renewal of the lease replaces a damaged renewal record. Without one the lease ends.
func TestDamagedRenewal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	b := fixture.Open(t, "sqlite:"+path)
	k := keeper(t, b)
	grantAndAttach(t, b, k, "session", time.Hour)
	damage(t, b, path, "Renewal")
	fixture.Eventually(t, "the lease is renewed", func() bool { return second(k.Renew(fixture.Context(t), "session")) == nil })
	if missing(t, b, "session") {
		t.Error("a lease ended early")
	}
	only(t, b, "lease", "Renewal") // is valid
	if err := k.Revoke(fixture.Context(t), "session"); err != nil {
		t.Fatal(err)
	}

	release := k.Extend("short") // the machine may be slow
	grantAndAttach(t, b, k, "short", time.Second)
	damage(t, b, path, "Renewal")
	release()
	fixture.Eventually(t, "the lease ends", func() bool { return missing(t, b, "short") })
}

// countingReads counts reads.
type countingReads struct {
	storage.Backend
	storage.Transactor
	n atomic.Int64
}

func (r *countingReads) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	r.n.Add(1)
	return r.Backend.Read(ctx, c, id)
}

// A keeper ignores a resource that is neither a lease nor a renewal.
func TestOtherKindInLeaseGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		r := &countingReads{Backend: b, Transactor: b.(storage.Transactor)}
		k := keeper(t, r)
		defer k.Close()
		synctest.Wait()
		other := fixture.Resource("other", "")
		other.Id.Type.Group, other.Id.Tenancy = "lease", system
		fixture.Write(t, b, other)
		<-time.After(time.Hour)
		synctest.Wait()
		if n := r.n.Load(); n > 10 {
			t.Errorf("an idle keeper made %d reads in an hour, expected at most 10", n)
		}
	})
}
