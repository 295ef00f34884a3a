package typed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// oldPlan is the type of a program that lacks some fields of the stored plans.
type oldPlan struct {
	Name  string    `json:"name"`
	Size  int       `json:"size,omitempty"`
	Steps []oldStep `json:"steps,omitempty"`
	Limit *oldStep  `json:"limit,omitempty"`
}

type oldStep struct {
	Do string `json:"do"`
	At int    `json:"at,omitempty"`
}

var planType = &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Plan"}

// writePlan stores a payload of JSON text, encoded with its fields in reverse order.
func writePlan(t *testing.T, b storage.Backend, text string) *resourcepb.Resource {
	t.Helper()
	s := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	var payload []byte
	names := []string{"zone", "steps", "size", "name", "limit"}
	for _, name := range names {
		if value := s.GetFields()[name]; value != nil {
			one, err := proto.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{name: value}})
			if err != nil {
				t.Fatal(err)
			}
			payload = append(payload, one...)
		}
	}
	id := &resourcepb.ID{Type: planType, Tenancy: shop, Name: "a", Uid: "1"}
	return fixture.Write(t, b, &resourcepb.Resource{Id: id, Data: &anypb.Any{TypeUrl: "example.com/google.protobuf.Struct", Value: payload}})
}

// A program changes metadata, a status or a field. The fields that its type lacks remain.
func TestUpdateKeepsPayloadFields(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.NewJSON[oldPlan](b, planType)
		const text = `{"name": "n", "zone": "west", "size": 3, "limit": {"do": "l", "by": 1},
			"steps": [{"do": "a", "at": 1, "by": 1}, {"do": "b", "at": 2, "by": 2}, {"do": "c", "at": 3, "by": 3}]}`
		before := writePlan(t, b, text)
		for name, update := range map[string]func() (*typed.Object[oldPlan], error){
			"metadata": func() (*typed.Object[oldPlan], error) {
				return c.Update(ctx, before.Id, func(o *typed.Object[oldPlan]) error { o.Metadata = map[string]string{"k": "v"}; return nil })
			},
			"status": func() (*typed.Object[oldPlan], error) {
				return c.UpdateStatus(ctx, before.Id, "me", func(_ *typed.Object[oldPlan], s *resourcepb.Status) error {
					s.ObservedGeneration = "g"
					return nil
				})
			},
		} {
			if _, err := update(); err != nil {
				t.Fatal(name, err)
			}
			if stored := fixture.Stored(t, b, before.Id); !bytes.Equal(stored.GetData().GetValue(), before.GetData().GetValue()) ||
				stored.GetData().GetTypeUrl() != before.GetData().GetTypeUrl() {
				t.Errorf("after an update of the %s the payload is %v, expected %v", name, stored.GetData(), before.GetData())
			}
		}
		for name, one := range map[string]struct {
			change func(*oldPlan)
			want   string
		}{
			"field":   {func(p *oldPlan) { p.Name = "m" }, strings.Replace(text, `"n"`, `"m"`, 1)},
			"removed": {func(p *oldPlan) { p.Size, p.Limit = 0, nil }, `{"name": "n", "zone": "west", "steps": [{"do": "a", "at": 1, "by": 1}, {"do": "b", "at": 2, "by": 2}, {"do": "c", "at": 3, "by": 3}]}`},
			"nested":  {func(p *oldPlan) { p.Limit.Do = "m" }, strings.Replace(text, `"l"`, `"m"`, 1)},
			"element": {func(p *oldPlan) { p.Steps[1].At = 9 }, strings.Replace(text, `"b", "at": 2`, `"b", "at": 9`, 1)},
			"replace": {func(p *oldPlan) { p.Steps[1] = oldStep{"x", 9} }, strings.Replace(text, `"b", "at": 2, "by": 2`, `"x", "at": 9`, 1)},
			"append":  {func(p *oldPlan) { p.Steps = append(p.Steps, oldStep{Do: "d"}) }, strings.Replace(text, `3}]`, `3}, {"do": "d"}]`, 1)},
			"insert and change": {func(p *oldPlan) { p.Steps[0].At = 9; p.Steps = append(p.Steps, oldStep{Do: "d"}) },
				strings.Replace(strings.Replace(text, `3}]`, `3}, {"do": "d"}]`, 1), `"a", "at": 1`, `"a", "at": 9`, 1)},
			"move":   {func(p *oldPlan) { p.Steps[0], p.Steps[2] = p.Steps[2], p.Steps[0] }, `{"name": "n", "zone": "west", "size": 3, "limit": {"do": "l", "by": 1}, "steps": [{"do": "c", "at": 3, "by": 3}, {"do": "b", "at": 2, "by": 2}, {"do": "a", "at": 1, "by": 1}]}`},
			"delete": {func(p *oldPlan) { p.Steps = p.Steps[1:] }, strings.Replace(text, `{"do": "a", "at": 1, "by": 1}, `, "", 1)},
		} {
			stored := fixture.Stored(t, b, before.Id)
			stored.Data = before.Data
			fixture.Write(t, b, stored)
			if _, err := c.Update(ctx, before.Id, func(o *typed.Object[oldPlan]) error { one.change(&o.Data); return nil }); err != nil {
				t.Fatal(name, err)
			}
			got := &structpb.Struct{}
			if err := proto.Unmarshal(fixture.Stored(t, b, before.Id).GetData().GetValue(), got); err != nil {
				t.Fatal(err)
			}
			want := &structpb.Struct{}
			if err := protojson.Unmarshal([]byte(one.want), want); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, want) {
				t.Errorf("%s: stored\n%v, expected\n%v", name, protojson.Format(got), protojson.Format(want))
			}
		}
	})
}

// A stored field whose name differs in case is the program's field, not an unknown one.
func TestUpdateFieldOfOtherCase(t *testing.T) {
	t.Parallel()
	c := typed.JSON[struct{ Name string }]()
	s, _ := structpb.NewStruct(map[string]any{"name": "a", "zone": "west"})
	data, _ := anypb.New(s)
	o, err := c.Object(&resourcepb.Resource{Id: &resourcepb.ID{}, Data: data})
	if err != nil || o.Data.Name != "a" {
		t.Fatal(o, err)
	}
	o.Data.Name = "b"
	res, err := c.Resource(o)
	if err != nil {
		t.Fatal(err)
	}
	if o, err = c.Object(res); err != nil || o.Data.Name != "b" || !bytes.Contains(res.GetData().GetValue(), []byte("west")) {
		t.Errorf("the object is %v (%v), expected the name b and the zone", o, err)
	}
}

// Text that is not UTF-8 is refused, not replaced. The replacement character itself and its escape are ordinary text.
func TestInvalidUTF8(t *testing.T) {
	t.Parallel()
	b := fixture.Open(t, "mem://")
	c := typed.NewJSON[map[string]any](b, planType)
	for _, data := range []map[string]any{{"a": "\xff"}, {"\xff": 1}, {"a": []any{"\\\xff"}}, {"a": json.RawMessage("\"\xff\"")}} {
		if _, err := c.Create(t.Context(), typed.Object[map[string]any]{ID: c.ID(shop, "a"), Data: data}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("create of %q: %v, expected ErrInvalid", data, err)
		}
	}
	in := map[string]any{"a": "\ufffd", "b": `\ufffd`, `\\ufffd`: `\\ufffd`}
	made, err := c.Create(t.Context(), typed.Object[map[string]any]{ID: c.ID(shop, "a"), Data: in})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range in {
		if made.Data[name] != want {
			t.Errorf("%q was read back as %q, expected %q", name, made.Data[name], want)
		}
	}
}
