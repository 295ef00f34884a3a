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

// damage puts bytes that are no resource where the one resource of a kind is stored in a file, as a change that watches see.
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

// A record that is damaged, of which the database cannot make a list nor a watch, stops the end of no other lease. Of a lease whose own
// record is damaged the time to live is not known any more: it ends when it is revoked.
func TestADamagedRecordStopsNoOtherLease(t *testing.T) {
	t.Parallel()
	damagedRecords(t, func(t *testing.T) (storage.Backend, func(kind string)) {
		path := filepath.Join(t.TempDir(), "store.db")
		b := fixture.Open(t, "sqlite:"+path)
		return b, func(kind string) { damage(t, b, path, kind) }
	})
}

// damagedRecords damages the records of leases, each on a store of its own.
func damagedRecords(t *testing.T, open func(t *testing.T) (b storage.Backend, damage func(kind string))) {
	for _, kind := range []string{"Lease", "Renewal"} {
		for name, blind := range map[string]bool{"seen": false, "before the keeper": true} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				b, damage := open(t)
				k := keeper(t, b)
				attached(t, b, k, "damaged", time.Hour)
				if blind {
					k.Close()
				}
				damage(kind)
				if blind {
					k = keeper(t, b)
				}
				attached(t, b, k, "other", time.Second)
				fixture.Eventually(t, "the other lease ends", func() bool { return missing(t, b, "other") })
				if missing(t, b, "damaged") {
					t.Error("a lease ended before its time")
				}
				if err := k.Revoke(fixture.Context(t), "damaged"); err != nil {
					t.Error(err)
				}
				if !missing(t, b, "damaged") {
					t.Error("what was attached outlives its lease")
				}
			})
		}
	}
}

// attached grants a lease and attaches a resource of the same name to it.
func attached(t *testing.T, b storage.Backend, k *lease.Keeper, name string, ttl time.Duration) {
	t.Helper()
	if err := attach(fixture.Context(t), b, grant(t, k, name, ttl), name); err != nil {
		t.Fatal(err)
	}
}

// A renewal that was damaged is written anew by whoever renews the lease; without that the lease ends.
func TestALeaseWhoseRenewalIsDamaged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	b := fixture.Open(t, "sqlite:"+path)
	k := keeper(t, b)
	attached(t, b, k, "session", 3*time.Second)
	damage(t, b, path, "Renewal")
	fixture.Eventually(t, "the lease is renewed", func() bool { return second(k.Renew(fixture.Context(t), "session")) == nil })
	if missing(t, b, "session") {
		t.Error("a lease ended before its time")
	}
	damage(t, b, path, "Renewal")
	fixture.Eventually(t, "the lease ends", func() bool { return missing(t, b, "session") })
}

// reads counts readings.
type reads struct {
	storage.Backend
	storage.Transactor
	n atomic.Int64
}

func (r *reads) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	r.n.Add(1)
	return r.Backend.Read(ctx, c, id)
}

// Something that is neither a lease nor a renewal, and has the name of none, is none of a keeper's business.
func TestAStrangerAmongTheLeases(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		r := &reads{Backend: b, Transactor: b.(storage.Transactor)}
		k := keeper(t, r)
		defer k.Close()
		synctest.Wait()
		stranger := fixture.Resource("stranger", "")
		stranger.Id.Type.Group, stranger.Id.Tenancy = "lease", system
		fixture.Write(t, b, stranger)
		<-time.After(time.Hour)
		synctest.Wait()
		if n := r.n.Load(); n > 10 {
			t.Errorf("an idle keeper reads %d times in an hour", n)
		}
	})
}
