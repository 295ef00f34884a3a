package registry_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

func typ(group, version, kind string) *resourcepb.Type {
	return &resourcepb.Type{Group: group, GroupVersion: version, Kind: kind}
}

func plain(t *resourcepb.Type) registry.Type {
	return registry.Type{Type: t, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace}
}

// New reports the errors of all types at once.
func TestAllErrorsAreReported(t *testing.T) {
	t.Parallel()
	_, err := registry.New(
		plain(typ("Upper", "v1", "Kind")),
		plain(typ("group", "1", "Kind")),
		plain(typ("group", "v1", "kind")),
		plain(typ("group", "v1", "K"+strings.Repeat("x", 255))),
		registry.Type{Type: typ("group", "v1", "NoProto"), Scope: registry.ScopeCluster},
		registry.Type{Type: typ("group", "v1", "NoScope"), Proto: &wrapperspb.StringValue{}},
		registry.Type{Type: typ("group", "v1", "OddScope"), Proto: &wrapperspb.StringValue{}, Scope: 17},
		plain(typ("group", "v1", "Twice")), plain(typ("group", "v1", "Twice")), plain(typ("group", "v1", "TWICE")),
		registry.Type{},
	)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`type 1, Upper.v1.Kind: the group "Upper"`, `type 2, group.1.Kind: the group version "1"`, `type 3, group.v1.kind: the kind "kind"`,
		`type 4, group.v1.K`, `type 5, group.v1.NoProto: Proto is nil`, `type 6, group.v1.NoScope: the scope is undefined`,
		`type 7, group.v1.OddScope: the scope is Scope(17)`, `type 9, group.v1.Twice: another type has the same name`,
		`type 10, group.v1.TWICE: its name differs from group.v1.Twice`, `type 11, ..: the group ""`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q:\n%v", want, err)
		}
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 14 {
		t.Errorf("the error has %d lines, not one for each of 14 faults:\n%v", lines, err)
	}
}

// New reports the errors of conversions.
func TestConversionErrorsAreReported(t *testing.T) {
	t.Parallel()
	convert := func(from, to string, change func(*registry.Type)) registry.Type {
		same := func(m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) { return m, nil }
		out := plain(typ("group", from, "Kind"))
		out.Conversion = registry.Convert(to, same, func(m, _ *wrapperspb.StringValue) (*wrapperspb.StringValue, error) { return m, nil })
		change(&out)
		return out
	}
	none := func(*registry.Type) {}
	stored, other := plain(typ("group", "v9", "Kind")), plain(typ("group", "v8", "Kind"))
	for _, c := range []struct {
		want  string
		types []registry.Type
	}{
		{"type group.v1.Kind: its Conversion needs a type group.v9.Kind without a Conversion", []registry.Type{convert("v1", "v9", none)}},
		{"type group.v2.Kind: its Conversion needs a type group.v1.Kind without a Conversion", []registry.Type{stored, convert("v1", "v9", none), convert("v2", "v1", none)}},
		{"type 2, group.v1.Kind: its Conversion is to its own group version", []registry.Type{stored, convert("v1", "v1", none)}},
		{"type group.v8.Kind: it does not convert to the group version v9 of the stored resources", []registry.Type{stored, other, convert("v1", "v9", none)}},
		{"type group.v1.Kind: its scope is cluster, but the stored version has namespace", []registry.Type{stored, convert("v1", "v9", func(t *registry.Type) { t.Scope = registry.ScopeCluster })}},
		{"type 2, group.v1.Kind: its Conversion has not both functions", []registry.Type{stored, convert("v1", "v9", func(t *registry.Type) { t.Conversion.ToStored = nil })}},
		{"type 2, group.v1.Kind: a type with a Conversion has no hooks", []registry.Type{stored, convert("v1", "v9", func(t *registry.Type) { t.Validate = func(*resourcepb.Resource) error { return nil } })}},
	} {
		if _, err := registry.New(c.types...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, expected %s", err, c.want)
		}
	}
	r, err := registry.New(stored, convert("v1", "v9", none), plain(typ("group", "v1", "Other")), plain(typ("group", "v2", "Other")))
	if err != nil || r.PartlyVisible(stored.Type) || !r.PartlyVisible(typ("group", "v1", "Other")) {
		t.Errorf("%v: a kind whose versions convert is visible in each version, and no other kind with two versions", err)
	}
}

func TestTypesAreFound(t *testing.T) {
	t.Parallel()
	given := []registry.Type{plain(typ("shop", "v2", "Order")), plain(typ("shop", "v1", "Order")), plain(typ("networking.k8s.io", "v1beta1", "Ingress"))}
	r, err := registry.New(given...)
	if err != nil {
		t.Fatal(err)
	}
	given[0].Type.Group = "changed"
	if found, ok := r.Resolve(typ("shop", "v2", "Order")); !ok || found.Type.GetGroup() != "shop" {
		t.Errorf("Resolve: %v, %v", found, ok)
	}
	for _, unknown := range []*resourcepb.Type{nil, typ("shop", "v3", "Order"), typ("shop", "v1", "order"), typ("Shop", "v1", "Order")} {
		if _, ok := r.Resolve(unknown); ok {
			t.Errorf("%v was found", unknown)
		}
	}
	var names []string
	for _, found := range r.Types() {
		names = append(names, registry.Name(found.Type))
	}
	if want := []string{"networking.k8s.io.v1beta1.Ingress", "shop.v1.Order", "shop.v2.Order"}; !slices.Equal(names, want) {
		t.Errorf("Types: %v, not %v", names, want)
	}
	if r.Open() || !r.PartlyVisible(typ("shop", "v1", "Order")) || r.PartlyVisible(typ("networking.k8s.io", "v1", "Ingress")) {
		t.Error("one caller sees some resources of a type with two versions only, and all of a type with one")
	}
}

func TestOpenAcceptsWellFormedTypes(t *testing.T) {
	t.Parallel()
	r := registry.NewOpen(registry.Type{})
	found, ok := r.Resolve(typ("any", "v1", "Thing"))
	if !ok || found.Scope != registry.ScopeNamespace || found.Proto != nil || !r.Open() || !r.PartlyVisible(typ("any", "v1", "Thing")) {
		t.Errorf("Resolve: %+v, %v", found, ok)
	}
	for _, bad := range []*resourcepb.Type{nil, typ("any", "v1", "*"), typ("", "v1", "Thing"), typ("any", "", "Thing"), typ("a\x00b", "v1", "Thing"), typ("any", "v1", "Thing\n")} {
		if _, ok := r.Resolve(bad); ok {
			t.Errorf("%v is malformed, but was accepted", bad)
		}
	}
}

// Each part of a name has at most 255 bytes.
func TestLongestNames(t *testing.T) {
	t.Parallel()
	r := registry.NewOpen(registry.Type{})
	long := strings.Repeat("a", 253)
	for _, extra := range []struct {
		text string
		want bool
	}{{"", true}, {"a", false}} {
		for _, name := range []*resourcepb.Type{typ("aa"+long+extra.text, "v1", "Kind"), typ("group", "v1", "Aa"+long+extra.text), typ("group", "v"+long+extra.text+"1", "Kind")} {
			if _, ok := r.Resolve(name); ok != extra.want {
				t.Errorf("%v: accepted %v, expected %v", name, ok, extra.want)
			}
		}
	}
}

type operator struct{ read, write error }

func (o operator) OperatorRead() error  { return o.read }
func (o operator) OperatorWrite() error { return o.write }

// Without hooks a type is for operators.
func TestOperatorsByDefault(t *testing.T) {
	t.Parallel()
	r, err := registry.New(plain(typ("shop", "v1", "Order")))
	if err != nil {
		t.Fatal(err)
	}
	found, _ := r.Resolve(typ("shop", "v1", "Order"))
	reads, writes := errors.New("no reads"), errors.New("no writes")
	c := operator{reads, writes}
	if found.MayRead(c, nil, nil) != reads || found.MayList(c, nil, nil) != reads || found.MayWrite(c, nil) != writes {
		t.Error("the hooks do not require an operator")
	}
}

// withScope is a message whose schema declares a scope by an option that this program does not know.
func withScope(t *testing.T, spec []byte) proto.Message {
	t.Helper()
	options := &descriptorpb.MessageOptions{}
	options.ProtoReflect().SetUnknown(spec)
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("x.proto"), Package: proto.String("x"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M"), Options: options}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return dynamicpb.NewMessage(file.Messages().ByName(protoreflect.Name("M")))
}

func TestDeclaredScope(t *testing.T) {
	t.Parallel()
	option := func(scope uint64) []byte {
		spec := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), scope)
		return protowire.AppendBytes(protowire.AppendTag(nil, 8500, protowire.BytesType), spec)
	}
	for _, c := range []struct {
		name   string
		option []byte
		given  registry.Scope
		want   registry.Scope // ScopeUndefined for an error
	}{
		{"declared", option(2), registry.ScopeUndefined, registry.ScopePartition},
		{"said otherwise", option(2), registry.ScopeCluster, registry.ScopeCluster},
		{"unknown", option(9), registry.ScopeUndefined, registry.ScopeUndefined},
		{"none", nil, registry.ScopeUndefined, registry.ScopeUndefined},
		{"another option", protowire.AppendVarint(protowire.AppendTag(nil, 8501, protowire.VarintType), 2), registry.ScopeUndefined, registry.ScopeUndefined},
		{"before another option", protowire.AppendBytes(protowire.AppendTag(option(2), 8501, protowire.BytesType), []byte("text")), registry.ScopeUndefined, registry.ScopePartition},
		{"before the number with another type", protowire.AppendVarint(protowire.AppendTag(option(2), 8500, protowire.VarintType), 1), registry.ScopeUndefined, registry.ScopePartition},
		{"cut off", option(2)[:4], registry.ScopeUndefined, registry.ScopeUndefined},
	} {
		r, err := registry.New(registry.Type{Type: typ("xx", "v1", "My"), Proto: withScope(t, c.option), Scope: c.given})
		if c.want == registry.ScopeUndefined {
			if err == nil {
				t.Errorf("%s: no error", c.name)
			}
			continue
		}
		if err == nil {
			if found, _ := r.Resolve(typ("xx", "v1", "My")); found.Scope != c.want {
				t.Errorf("%s: the scope is %v, not %v", c.name, found.Scope, c.want)
			}
			continue
		}
		t.Errorf("%s: %v", c.name, err)
	}
}

func TestDecoded(t *testing.T) {
	t.Parallel()
	fail := errors.New("no")
	hook := registry.Decoded(func(r *registry.Resource[*wrapperspb.StringValue]) error {
		switch r.Data.GetValue() {
		case "bad":
			return fail
		case "":
			r.Data.Value = "default"
		}
		return nil
	})
	res := &resourcepb.Resource{}
	if err := hook(res); err != nil || res.GetData().GetTypeUrl() != "type.googleapis.com/google.protobuf.StringValue" {
		t.Errorf("a resource without a payload: %v, %v", res, err)
	}
	set := func(value string) {
		res.Data = &anypb.Any{TypeUrl: "other.host/google.protobuf.StringValue", Value: []byte(value)}
	}
	set("\n\x03bad")
	if err := hook(res); !errors.Is(err, fail) {
		t.Errorf("the function's error became %v", err)
	}
	set("\n\x02ok\x12\x01u") // field 2 is unknown
	if err := hook(res); err != nil || string(res.GetData().GetValue()) != "\n\x02ok\x12\x01u" {
		t.Errorf("a payload that was not changed became %q (%v)", res.GetData().GetValue(), err)
	}
	set("\x12\x01u")
	if err := hook(res); err != nil || string(res.GetData().GetValue()) != "\n\x07default\x12\x01u" || res.GetData().GetTypeUrl() != "other.host/google.protobuf.StringValue" {
		t.Errorf("a payload with a default is %v (%v)", res.GetData(), err)
	}
	set("\n\x09short")
	if err := hook(res); err == nil {
		t.Error("a payload that does not decode was accepted")
	}
}
