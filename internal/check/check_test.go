package check

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

func good() *resourcepb.Resource {
	return &resourcepb.Resource{Id: &resourcepb.ID{Uid: "u", Name: "n", Type: &resourcepb.Type{Group: "g", Kind: "k"}, Tenancy: &resourcepb.Tenancy{}}}
}

func TestResourceErrorsNameField(t *testing.T) {
	t.Parallel()
	for field, spoil := range map[string]func(*resourcepb.Resource){
		"id is nil":            func(r *resourcepb.Resource) { r.Id = nil },
		"id.type is nil":       func(r *resourcepb.Resource) { r.Id.Type = nil },
		"id.tenancy is nil":    func(r *resourcepb.Resource) { r.Id.Tenancy = nil },
		"id.uid is empty":      func(r *resourcepb.Resource) { r.Id.Uid = "" },
		"id.name is empty":     func(r *resourcepb.Resource) { r.Id.Name = "" },
		"id.type.group":        func(r *resourcepb.Resource) { r.Id.Type.Group = "" },
		"id.type.kind":         func(r *resourcepb.Resource) { r.Id.Type.Kind = "*" },
		"id.tenancy.partition": func(r *resourcepb.Resource) { r.Id.Tenancy.Partition = "*" },
		"id.tenancy.namespace": func(r *resourcepb.Resource) { r.Id.Tenancy.Namespace = "a\x00b" },
		"NUL":                  func(r *resourcepb.Resource) { r.Id.Name = "\x00" },
		"UTF-8":                func(r *resourcepb.Resource) { r.Id.Name = "\xff" },
		"256 bytes":            func(r *resourcepb.Resource) { r.Id.Name = strings.Repeat("n", 256) },
		"group_version":        func(r *resourcepb.Resource) { r.Id.Type.GroupVersion = "\xff" },
		"owner.uid":            func(r *resourcepb.Resource) { r.Owner = good().Id; r.Owner.Uid = "" },
		"got 0s":               func(r *resourcepb.Resource) { r.Ttl = &durationpb.Duration{} },
		"got -1ns":             func(r *resourcepb.Resource) { r.Ttl = durationpb.New(-1) },
		"at most 87600h0m0s":   func(r *resourcepb.Resource) { r.Ttl = durationpb.New(MaxTTL + 1) },
		"got 1 seconds and -1": func(r *resourcepb.Resource) { r.Ttl = &durationpb.Duration{Seconds: 1, Nanos: -1} },
		"owner.type is nil":    func(r *resourcepb.Resource) { r.Owner = &resourcepb.ID{} },
	} {
		res := good()
		spoil(res)
		if _, err := Resource(res, 0); !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v, expected ErrInvalid with the field", field, err)
		}
	}
	res := good()
	res.Id.Name = strings.Repeat("n", 255)
	res.Ttl = durationpb.New(MaxTTL)
	if _, err := Resource(res, 0); err != nil {
		t.Errorf("a name of 255 bytes and a time to live of 10 years are valid, got %v", err)
	}
}

func TestSizeLimitIsExact(t *testing.T) {
	t.Parallel()
	for _, most := range []int{0, 1000} {
		limit := most
		if limit == 0 {
			limit = MaxSize
		}
		res := good()
		res.Version = strings.Repeat("v", 100) // does not count
		res.Data = &anypb.Any{Value: make([]byte, limit/2)}
		res.Data.Value = make([]byte, limit/2+limit-codec.Size(res)) // lengths take the same number of bytes in this range
		for codec.Size(res) > limit {
			res.Data.Value = res.Data.Value[1:]
		}
		if n := codec.Size(res); n != limit {
			t.Fatalf("the resource of the test has %d bytes, expected %d", n, limit)
		}
		if _, err := Resource(res, most); err != nil {
			t.Errorf("a resource of %d bytes is valid, got %v", limit, err)
		}
		res.Data.Value = append(res.Data.Value, 0)
		if _, err := Resource(res, most); !errors.Is(err, storage.ErrTooLarge) {
			t.Errorf("%d bytes: %v", limit+1, err)
		}
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	ten := &resourcepb.Tenancy{Partition: "*", Namespace: "*"}
	for name, err := range map[string]error{
		"no tenancy":    filterError(storage.UnversionedType{Group: "g", Kind: "k"}, nil, ""),
		"no kind":       filterError(storage.UnversionedType{Group: "g"}, ten, ""),
		"no group":      filterError(storage.UnversionedType{Kind: "k"}, ten, ""),
		"group * alone": filterError(storage.UnversionedType{Group: "*", Kind: "k"}, ten, ""),
		"prefix":        filterError(storage.UnversionedType{Group: "g", Kind: "k"}, ten, "\xff"),
	} {
		if !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, typ := range []storage.UnversionedType{{Group: "g", Kind: "k"}, {Group: "g", Kind: "*"}, {Group: "*", Kind: "*"}} {
		if err := filterError(typ, ten, "*"); err != nil {
			t.Errorf("%v: %v", typ, err)
		}
	}
}

func filterError(typ storage.UnversionedType, ten *resourcepb.Tenancy, prefix string) error {
	_, err := Filter(typ, ten, prefix)
	return err
}

func TestOps(t *testing.T) {
	t.Parallel()
	other := good()
	other.Id.Name = "other"
	big := good()
	big.Data = &anypb.Any{Value: make([]byte, 600<<10)}
	big2 := good()
	big2.Id.Name = "big2"
	big2.Data = big.Data
	for name, tc := range map[string]struct {
		ops   []storage.Op
		want  error
		index int // -1: no OpError
	}{
		"nothing set":          {[]storage.Op{{}}, storage.ErrInvalid, 0},
		"two set":              {[]storage.Op{{Write: good(), Check: good().Id}}, storage.ErrInvalid, 0},
		"version beside write": {[]storage.Op{{Write: good(), Version: "1"}}, storage.ErrInvalid, 0},
		"one key twice":        {[]storage.Op{{Write: other}, {Write: good()}, {Delete: good().Id}}, storage.ErrInvalid, 2},
		"check without uid":    {[]storage.Op{{Check: &resourcepb.ID{Name: "n", Type: good().Id.Type, Tenancy: good().Id.Tenancy}, Version: "1"}}, storage.ErrInvalid, 0},
		"too many":             {make([]storage.Op, 5), storage.ErrTooLarge, -1},
		"too large together":   {[]storage.Op{{Write: big}, {Write: big2}}, storage.ErrTooLarge, -1},
	} {
		_, err := Ops(tc.ops, 4, 0)
		var op *storage.OpError
		isOp := errors.As(err, &op)
		if !errors.Is(err, tc.want) || isOp != (tc.index >= 0) || isOp && op.Index != tc.index {
			t.Errorf("%s: got %v", name, err)
		}
	}
	absent := &resourcepb.ID{Name: "n", Type: good().Id.Type, Tenancy: good().Id.Tenancy}
	if _, err := Ops([]storage.Op{{Check: absent}, {Delete: other.Id, Version: "x"}}, 4, 0); err != nil {
		t.Errorf("a check for absence needs no uid: %v", err)
	}
}
