package tables_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

// An object that a transaction deletes can be put again under its uid, not under another one.
func TestPutAfterDeleteKeepsUid(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		create(ctx, t, s, map[string]int64{"a": 1})
		var uid string
		update(ctx, t, s, func(tx *tables.Tx) error {
			o, err := numbers.Get(tx, id("a"))
			if err != nil {
				return err
			}
			uid = o.ID.Uid
			if err := numbers.Delete(tx, id("a")); err != nil {
				return err
			}
			other := put("a", 2)
			other.ID.Uid = "other"
			if err := numbers.Put(tx, other); !errors.Is(err, storage.ErrWrongUid) {
				t.Errorf("put with another uid: %v, expected ErrWrongUid", err)
			}
			same := put("a", 3)
			same.ID.Uid = uid
			if err := numbers.Put(tx, same); err != nil {
				return err
			}
			return numbers.Delete(tx, id("a"))
		})
		create(ctx, t, s, map[string]int64{"a": 4})
		update(ctx, t, s, func(tx *tables.Tx) error {
			if err := numbers.Delete(tx, id("a")); err != nil {
				return err
			}
			return numbers.Put(tx, put("a", 5))
		})
		if err := s.View(ctx, func(v *tables.View) error {
			if o, err := numbers.Get(v, id("a")); err != nil || o.Data.GetValue() != 5 || o.ID.Uid == uid {
				t.Errorf("stored: %v, %v, expected 5 with another uid than %s", o, err, uid)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// A stored resource that cannot be decoded is reported by its table, and an object can replace it.
func TestReplaceUndecodable(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b := fixture.Open(t, url)
		res := &resourcepb.Resource{Id: id("a"), Data: &anypb.Any{TypeUrl: "example.com/Other"}}
		res.Id.Uid = "u"
		res, err := b.WriteCAS(ctx, res)
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, url, numbers)
		create(ctx, t, s, map[string]int64{"b": 1})
		problems := func() (all []error) {
			if err := s.View(ctx, func(v *tables.View) error { all = numbers.DecodeErrors(v); return nil }); err != nil {
				t.Fatal(err)
			}
			return all
		}
		if all := problems(); len(all) != 1 || !errors.As(all[0], new(*typed.PayloadError)) {
			t.Errorf("the table reports %v, expected one PayloadError", all)
		}
		o := put("a", 2)
		o.ID.Uid, o.Version = "u", res.Version
		update(ctx, t, s, func(tx *tables.Tx) error { return numbers.Put(tx, o) })
		stored := fixture.Stored(t, b, id("a"))
		if all := problems(); len(all) > 0 || stored.GetGeneration() == "" || stored.GetId().GetUid() != "u" {
			t.Errorf("the table reports %v, and %v is stored, expected an object with a generation", all, stored)
		}
	})
}
