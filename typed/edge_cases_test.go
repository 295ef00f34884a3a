package typed_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

type numbers struct {
	Signed   []int64
	Unsigned []uint64
	Floats   []float64
}

// Integers that a Struct can represent are read back exactly.
func TestJSONIntegersRoundTrip(t *testing.T) {
	t.Parallel()
	c := typed.JSON[numbers]()
	in := numbers{
		Signed:   []int64{0, 1<<53 + 2, 1 << 60, -1 << 62, math.MinInt64},
		Unsigned: []uint64{1 << 63, 1<<63 + 1<<11},
		Floats:   []float64{0.1, -1e-7, 1 << 60, 1e21, 1e300, math.MaxFloat64, math.SmallestNonzeroFloat64},
	}
	res, err := c.Resource(&typed.Object[numbers]{ID: &resourcepb.ID{}, Data: in})
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Object(res)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range in.Signed {
		if out.Data.Signed[i] != n {
			t.Errorf("%d was read back as %d", n, out.Data.Signed[i])
		}
	}
	for i, n := range in.Unsigned {
		if out.Data.Unsigned[i] != n {
			t.Errorf("%d was read back as %d", n, out.Data.Unsigned[i])
		}
	}
	for i, n := range in.Floats {
		if out.Data.Floats[i] != n {
			t.Errorf("%g was read back as %g", n, out.Data.Floats[i])
		}
	}
}

// A change function that removes the id or its type does not affect the stored id.
func TestUpdateCannotChangeID(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		made, err := c.Create(ctx, counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(1)})
		if err != nil {
			t.Fatal(err)
		}
		for _, modify := range []func(o *counter){
			func(o *counter) { o.ID = nil },
			func(o *counter) { o.ID.Type = nil },
			func(o *counter) { o.ID = &resourcepb.ID{Uid: "other", Name: "other"} },
		} {
			got, err := c.Update(ctx, made.ID, func(o *counter) error { modify(o); o.Data.Value++; return nil })
			if err != nil || !proto.Equal(got.ID, made.ID) {
				t.Errorf("the update returned %v, %v, expected the id %v", got, err, made.ID)
			}
		}
	})
}

// A change function that leaves an absent status empty writes nothing.
func TestUpdateStatusUnchanged(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		made, err := c.Create(ctx, counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(1)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.UpdateStatus(ctx, made.ID, "watcher", func(*counter, *resourcepb.Status) error { return nil })
		if err != nil || got.Version != made.Version || len(got.Status) > 0 {
			t.Errorf("the update returned %v, %v, expected version %s without a status", got, err, made.Version)
		}
	})
}

// An update preserves fields of a resource that only newer programs know.
func TestUpdateKeepsUnknownFields(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		data, err := anypb.New(wrapperspb.Int64(1))
		if err != nil {
			t.Fatal(err)
		}
		res := &resourcepb.Resource{Id: c.ID(shop, "a"), Data: data}
		res.Id.Uid = "1"
		unknown := protowire.AppendString(protowire.AppendTag(nil, 500, protowire.BytesType), "of a newer program")
		res.ProtoReflect().SetUnknown(unknown)
		if _, err := b.WriteCAS(ctx, res); err != nil {
			t.Fatal(err)
		}
		got, err := c.Update(ctx, res.Id, func(o *counter) error { o.Data.Value = 2; return nil })
		if err != nil || got.Data.Value != 2 {
			t.Fatal(got, err)
		}
		stored, err := b.Read(ctx, storage.StrongConsistency, res.Id)
		if err != nil || string(stored.ProtoReflect().GetUnknown()) != string(unknown) {
			t.Errorf("stored: %v, %v, expected the unknown field", stored, err)
		}
	})
}

// Every payload that can be written can be read, whatever its depth.
func TestDeepJSON(t *testing.T) {
	t.Parallel()
	b := fixture.Open(t, "mem://")
	c := typed.NewJSON[map[string]any](b, &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Deep"})
	for name, wrap := range map[string]func(any) any{
		"list":   func(v any) any { return []any{v} },
		"object": func(v any) any { return map[string]any{"a": v} },
	} {
		for _, depth := range []int{3_400, 9_998, 9_999} {
			var v any = "x"
			for range depth {
				v = wrap(v)
			}
			id := c.ID(fixture.Tenancy, fmt.Sprint(name, depth))
			_, err := c.Create(t.Context(), typed.Object[map[string]any]{ID: id, Data: map[string]any{"v": v}})
			stored := fixture.Stored(t, b, id)
			if (err == nil) != (stored != nil) {
				t.Errorf("a JSON %s of depth %d: %.200s, stored: %v", name, depth, fmt.Sprint(err), stored != nil)
			}
		}
	}
}
