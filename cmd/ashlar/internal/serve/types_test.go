package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage/service/registry"
)

// message returns the schema of a message with one field, a duration. It declares scope unless that is 0.
func message(name string, scope registry.Scope) *descriptorpb.DescriptorProto {
	m := &descriptorpb.DescriptorProto{Name: proto.String(name), Field: []*descriptorpb.FieldDescriptorProto{{
		Name: proto.String("patience"), Number: proto.Int32(1), TypeName: proto.String(".google.protobuf.Duration"),
		Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
	}}}
	if scope != registry.ScopeUndefined {
		spec := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(scope))
		m.Options = &descriptorpb.MessageOptions{}
		m.Options.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 8500, protowire.BytesType), spec))
	}
	return m
}

// schema returns the schema of a file of a package.
func schema(path, pkg string, messages ...*descriptorpb.DescriptorProto) *descriptorpb.FileDescriptorProto {
	return &descriptorpb.FileDescriptorProto{
		Name: proto.String(path), Package: proto.String(pkg), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/duration.proto"}, MessageType: messages,
	}
}

// saveSet writes a descriptor set into a directory.
func saveSet(t *testing.T, dir, name string, files ...*descriptorpb.FileDescriptorProto) {
	t.Helper()
	text, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: files})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadTypes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	duration := protodesc.ToFileDescriptorProto(durationpb.File_google_protobuf_duration_proto)
	catalog := schema("acme/catalog/v1/catalog.proto", "acme.catalog.v1",
		message("Service", registry.ScopeNamespace), message("Region", registry.ScopeCluster), message("Detail", registry.ScopeUndefined))
	saveSet(t, dir, "a.binpb", duration, catalog)
	saveSet(t, dir, "b.pb", catalog, schema("acme/v2/other.proto", "acme.other", message("Thing", registry.ScopeUndefined), message("Old", registry.ScopePartition)))
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("no descriptor set"), 0o600); err != nil {
		t.Fatal(err)
	}
	named := "types:\n  - {type: my.shop.v1.Thing, message: acme.other.Thing, scope: partition}\n  - {type: shop.v1beta1.Old, message: acme.other.Old}\n"
	if err := os.WriteFile(filepath.Join(dir, typeFile), []byte(named), 0o600); err != nil {
		t.Fatal(err)
	}
	types, err := newRegistry(&Config{Types: dir}, true)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]registry.Scope{
		"catalog.v1.Service": registry.ScopeNamespace, "catalog.v1.Region": registry.ScopeCluster,
		"my.shop.v1.Thing": registry.ScopePartition, "shop.v1beta1.Old": registry.ScopePartition,
	}
	for _, typ := range types.Types() {
		name := registry.Name(typ.Type)
		if want[name] != typ.Scope || typ.Scope == registry.ScopeUndefined {
			t.Errorf("%s has the scope %v, not %v", name, typ.Scope, want[name])
		}
		if typ.Proto.ProtoReflect().Descriptor().Fields().ByName("patience") == nil || typ.MayRead == nil {
			t.Errorf("%s has no payload or no hook", name)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
}

func TestInvalidTypeDirectories(t *testing.T) {
	t.Parallel()
	good := schema("acme/catalog/v1/catalog.proto", "acme.catalog.v1", message("Service", registry.ScopeNamespace))
	for name, tc := range map[string]struct {
		sets  map[string]*descriptorpb.FileDescriptorProto
		named string
		want  []string
	}{
		"nothing":             {nil, "", []string{"no descriptor set"}},
		"no set":              {map[string]*descriptorpb.FileDescriptorProto{"a.pb": nil}, "", []string{"a.pb is not a descriptor set"}},
		"no type":             {map[string]*descriptorpb.FileDescriptorProto{"a.pb": schema("a.proto", "a.b", message("A", 0))}, "", []string{"no message of the descriptor sets", "declares a scope"}},
		"no group":            {map[string]*descriptorpb.FileDescriptorProto{"a.pb": schema("a.proto", "v1", message("A", registry.ScopeNamespace))}, "", []string{"v1.A declares a scope, but its package has no group and version"}},
		"no version":          {map[string]*descriptorpb.FileDescriptorProto{"a.pb": schema("a.proto", "acme.catalog", message("A", registry.ScopeNamespace))}, "", []string{`the group version "catalog" does not match`}},
		"two of one":          {map[string]*descriptorpb.FileDescriptorProto{"a.pb": good, "b.pb": schema(good.GetName(), "acme.catalog.v1", message("B", 0))}, "", []string{"differs from its copy in"}},
		"an import":           {map[string]*descriptorpb.FileDescriptorProto{"a.pb": {Name: proto.String("a.proto"), Dependency: []string{"b.proto"}}}, "", []string{`could not resolve import "b.proto"`, "with all their imports"}},
		"unknown message":     {map[string]*descriptorpb.FileDescriptorProto{"a.pb": good}, "types:\n  - {type: a.v1.B, message: a.B, scope: cluster}", []string{`types.yaml: line 2: no descriptor set has the message "a.B"`}},
		"unknown scope":       {map[string]*descriptorpb.FileDescriptorProto{"a.pb": good}, "types:\n  - {type: a.v1.B, message: acme.catalog.v1.Service, scope: galaxy}", []string{"line 2: a scope must be namespace, partition or cluster"}},
		"short name":          {map[string]*descriptorpb.FileDescriptorProto{"a.pb": good}, "types:\n  - {type: v1.B, message: acme.catalog.v1.Service}", []string{"line 2: a type must be group.version.Kind"}},
		"no name, no message": {map[string]*descriptorpb.FileDescriptorProto{"a.pb": good}, "types:\n  - {message: acme.catalog.v1.Service}\n  - {type: a.v1.B}", []string{"line 2: type is missing", "line 3: message is missing"}},
		"no scope":            {map[string]*descriptorpb.FileDescriptorProto{"a.pb": schema("a.proto", "a.b", message("A", 0))}, "types:\n  - {type: a.v1.Bb, message: a.b.A}", []string{"line 2: scope is missing"}},
		"unknown key":         {map[string]*descriptorpb.FileDescriptorProto{"a.pb": good}, "kinds: []", []string{`line 1: unknown key "kinds", expected types`}},
		"type twice": {map[string]*descriptorpb.FileDescriptorProto{"a.pb": good},
			"types:\n  - {type: a.v1.Bb, message: acme.catalog.v1.Service}\n  - {type: a.v1.Bb, message: acme.catalog.v1.Service}", []string{"a.v1.Bb: another type has the same name"}},
	} {
		dir := t.TempDir()
		for file, set := range tc.sets {
			if set == nil {
				if err := os.WriteFile(filepath.Join(dir, file), []byte("text"), 0o600); err != nil {
					t.Fatal(err)
				}
				continue
			}
			saveSet(t, dir, file, set)
		}
		if tc.named != "" {
			if err := os.WriteFile(filepath.Join(dir, typeFile), []byte(tc.named), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := newRegistry(&Config{Types: dir}, false)
		if err == nil {
			t.Errorf("%s: it is accepted", name)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not contain %q", name, err, want)
			}
		}
	}
}
