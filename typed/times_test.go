package typed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// An object has the times of its creation, of its last change and of its last status.
func TestTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inmem.New(nil)
		defer b.Close()
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		start, ctx := time.Now().UTC(), t.Context()
		expect := func(o *counter, err error, created, updated time.Time) {
			t.Helper()
			if err != nil || !o.Created().Equal(created) || !o.Updated().Equal(updated) {
				t.Errorf("created %v, updated %v (%v), expected %v and %v", o.Created(), o.Updated(), err, created, updated)
			}
		}
		made, err := c.Create(ctx, counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(1)})
		expect(made, err, start, start)
		time.Sleep(time.Hour)
		o, err := c.Update(ctx, made.ID, func(o *counter) error { o.Data.Value++; return nil })
		expect(o, err, start, start.Add(time.Hour))
		time.Sleep(time.Hour)
		o, err = c.UpdateStatus(ctx, made.ID, "me", func(_ *counter, s *resourcepb.Status) error { s.ObservedGeneration = "g"; return nil })
		expect(o, err, start, start.Add(2*time.Hour))
		o.ID.Uid, o.Generation, o.Status = "other", "", nil
		expect(o, nil, time.Time{}, time.Time{})
	})
}
