package lease_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// only returns the single stored resource of a kind in the tenancy of locks and leases.
func only(t *testing.T, b storage.Backend, group, kind string) *resourcepb.Resource {
	t.Helper()
	all, err := b.List(t.Context(), storage.StrongConsistency, storage.UnversionedType{Group: group, Kind: kind}, system, "")
	if err != nil || len(all) != 1 {
		t.Fatalf("%d resources %s/%s, %v", len(all), group, kind, err)
	}
	return all[0]
}

// remove deletes the single resource of a kind, like an operator would.
func remove(t *testing.T, b storage.Backend, group, kind string) {
	t.Helper()
	res := only(t, b, group, kind)
	if err := b.DeleteCAS(t.Context(), res.GetId(), res.GetVersion()); err != nil {
		t.Fatal(err)
	}
}

func TestLeaseWithoutRenewalRecordExpires(t *testing.T) {
	for name, newKeeper := range map[string]bool{"same keeper": false, "new keeper": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b storage.Backend) {
				k := keeper(t, b)
				if err := attach(t.Context(), b, grant(t, k, "session", 10*time.Second), "attached"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				remove(t, b, "lease", "Renewal")
				if newKeeper {
					k.Close()
					k = keeper(t, b)
				}
				defer k.Close()
				<-time.After(9 * time.Second)
				synctest.Wait()
				if missing(t, b, "attached") {
					t.Error("a lease ended early")
				}
				<-time.After(2 * time.Second)
				synctest.Wait()
				if !missing(t, b, "attached") {
					t.Error("the attached resource outlived its lease")
				}
			})
		})
	}
}

// A holder can renew as usual after its renewal record was deleted.
func TestRenewRestoresDeletedRenewalRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		k := keeper(t, b)
		defer k.Close()
		grant(t, k, "session", 10*time.Second)
		synctest.Wait()
		remove(t, b, "lease", "Renewal")
		for range 5 {
			<-time.After(9 * time.Second)
			if _, err := k.Renew(t.Context(), "session"); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestGrantAfterLeaseRecordDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		k := keeper(t, b)
		defer k.Close()
		grant(t, k, "session", 10*time.Second)
		synctest.Wait()
		remove(t, b, "lease", "Lease")
		if _, err := k.Grant(t.Context(), "session", time.Hour); !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("granted before the deleted lease's resources were cleaned up: %v", err)
		}
		<-time.After(2 * time.Second)
		if err := attach(t.Context(), b, grant(t, k, "session", 10*time.Second), "attached"); err != nil {
			t.Fatal(err)
		}
		<-time.After(11 * time.Second)
		synctest.Wait()
		if !missing(t, b, "attached") {
			t.Error("the attached resource outlived its lease")
		}
	})
}
