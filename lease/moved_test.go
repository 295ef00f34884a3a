package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/moved"
)

// inMovingStore runs a test with a store that a program follows, and a function that moves it to another.
func inMovingStore(t *testing.T, test func(t *testing.T, b storage.Backend, move func())) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		from, to := inmem.New(nil), inmem.New(nil)
		b := moved.New(from, func(context.Context, *storage.MovedError) (storage.Backend, error) { return to, nil })
		defer b.Close()
		test(t, b, func() {
			t.Helper()
			o := &migrate.Options{From: "old", To: "new", Live: true, CutoverLag: time.Hour}
			if r, err := migrate.Run(t.Context(), from, to, o); err != nil || r.Phase != migrate.Complete {
				t.Fatalf("%+v, %v", r, err)
			}
		})
	})
}

// A lease whose holder has died ends after its store has moved. The records have new versions there, and the keeper's watch does not return them.
func TestLeaseEndsAfterMove(t *testing.T) {
	inMovingStore(t, func(t *testing.T, b storage.Backend, move func()) {
		k := keeper(t, b)
		defer k.Close()
		l := grant(t, k, "session", 10*time.Second)
		if err := attach(t.Context(), b, l, "attached"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		move()
		<-time.After(time.Minute)
		synctest.Wait()
		if !missing(t, b, "attached") {
			t.Error("the resource of a dead holder is stored a minute after its time to live")
		}
		if names, err := k.Names(t.Context()); err != nil || len(names) != 0 {
			t.Errorf("leases: %v, %v", names, err)
		}
	})
}

// A lease that is renewed does not end because its store has moved, and can be revoked.
func TestLeaseLivesThroughMove(t *testing.T) {
	inMovingStore(t, func(t *testing.T, b storage.Backend, move func()) {
		k := keeper(t, b)
		defer k.Close()
		if err := attach(t.Context(), b, grant(t, k, "session", 10*time.Second), "attached"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		<-time.After(9 * time.Second)
		move()
		for range 6 {
			if _, err := k.Renew(t.Context(), "session"); err != nil {
				t.Fatal(err)
			}
			<-time.After(9 * time.Second)
			if missing(t, b, "attached") {
				t.Fatal("a renewed lease has ended")
			}
		}
		if err := k.Revoke(t.Context(), "session"); err != nil {
			t.Fatal(err)
		}
		if !missing(t, b, "attached") {
			t.Error("the resource of a revoked lease is stored")
		}
	})
}

// A lease that is revoked at once after the move ends: no watch has returned a version of its record in the new store.
func TestRevokeAfterMove(t *testing.T) {
	inMovingStore(t, func(t *testing.T, b storage.Backend, move func()) {
		k := keeper(t, b)
		defer k.Close()
		if err := attach(t.Context(), b, grant(t, k, "session", time.Hour), "attached"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		move()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := k.Revoke(ctx, "session"); err != nil || !missing(t, b, "attached") {
			t.Errorf("Revoke: %v; the resource is missing: %v", err, missing(t, b, "attached"))
		}
	})
}

// A lock whose holder has died is free after its store has moved, and its epochs grow.
func TestLockAfterMove(t *testing.T) {
	inMovingStore(t, func(t *testing.T, b storage.Backend, move func()) {
		elector, err := lease.NewElector(b, system, "lock", &lease.Options{TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		first := campaign(t, elector)
		waiting := make(chan *lease.Tenure)
		go func() {
			tenure, err := elector.Campaign(t.Context())
			if err != nil {
				t.Error(err)
			}
			waiting <- tenure
		}()
		synctest.Wait()
		move()
		<-first.Done()
		select {
		case next := <-waiting:
			if next.Epoch() <= first.Epoch() {
				t.Errorf("epoch %d follows %d", next.Epoch(), first.Epoch())
			}
			resign(t, next)
		case <-time.After(time.Minute):
			t.Fatal("the lock of a holder that has lost it is not free after a minute")
		}
	})
}
