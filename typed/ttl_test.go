package typed_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/typed"
)

// A time to live is stored, kept by updates that do not change it, and renewed without another change.
func TestTTL(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		expect := func(o *counter, err error, ttl time.Duration) *counter {
			t.Helper()
			if err != nil || o.TTL != ttl {
				t.Fatalf("got %+v, %v, expected a TTL of %v", o, err, ttl)
			}
			if stored := fixture.Stored(t, b, o.ID); stored.GetTtl().AsDuration() != ttl || stored.GetVersion() != o.Version {
				t.Fatalf("stored: %v, expected %+v", stored, o)
			}
			return o
		}
		o, err := c.Create(ctx, counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(1), TTL: time.Minute})
		o = expect(o, err, time.Minute)
		again, err := c.Create(ctx, counter{ID: o.ID, Data: wrapperspb.Int64(1), TTL: time.Hour})
		if !errors.Is(err, typed.ErrExists) {
			t.Errorf("create with another TTL: %v, %v, expected ErrExists", again, err)
		}
		same, err := c.Update(ctx, o.ID, func(*counter) error { return nil })
		if expect(same, err, time.Minute).Version != o.Version {
			t.Error("an update without a change wrote")
		}
		renewed, err := c.Renew(ctx, o.ID)
		if expect(renewed, err, time.Minute).Version == o.Version || renewed.Generation != o.Generation || renewed.Data.GetValue() != 1 {
			t.Errorf("renewed: %+v, was %+v", renewed, o)
		}
		changed, err := c.Update(ctx, o.ID, func(o *counter) error { o.Data.Value++; return nil })
		expect(changed, err, time.Minute)
		longer, err := c.Apply(ctx, o.ID, func(o *counter) error { o.TTL = time.Hour; return nil })
		expect(longer, err, time.Hour)
		cleared, err := c.Update(ctx, o.ID, func(o *counter) error { o.TTL = 0; return nil })
		expect(cleared, err, 0)
		if _, err := c.Renew(ctx, o.ID); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("renew without a TTL: %v, expected ErrInvalid", err)
		}
		if _, err := c.Update(ctx, o.ID, func(o *counter) error { o.TTL = -1; return nil }); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a negative TTL: %v, expected ErrInvalid", err)
		}
		err = typed.Transact(ctx, b, func(tx *typed.Tx) error {
			o, err := c.In(tx).Get(o.ID)
			if err == nil {
				o.TTL = time.Second
				err = c.In(tx).Put(o)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		o, err = c.Get(ctx, storage.StrongConsistency, o.ID)
		expect(o, err, time.Second)
		if err := c.Delete(ctx, o.ID, typed.Preconditions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Renew(ctx, o.ID); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("renew of a deleted resource: %v, expected ErrNotFound", err)
		}
	})
}
