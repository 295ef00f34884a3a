package compat

import (
	"context"
	"testing"

	"github.com/hashicorp/consul/proto-public/pbresource"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// ownFields is the first number of our own fields.
const ownFields = 100

// ours maps names in the published schema to different names in our schema.
func ours(name protoreflect.FullName) protoreflect.FullName {
	const theirs, ours = "hashicorp.consul.resource.", "ashlar.resource.v1."
	if rest := string(name); len(rest) > len(theirs) && rest[:len(theirs)] == theirs {
		return protoreflect.FullName(ours + rest[len(theirs):])
	}
	return name
}

// Every message of the published schema has a counterpart here with the same fields, and no other fields below ownFields.
func TestSchemasAreEqual(t *testing.T) {
	t.Parallel()
	theirs := pbresource.File_pbresource_resource_proto
	own := resourcepb.File_resourcepb_resource_proto
	if got := compareMessages(t, theirs.Messages(), own.Messages(), ours); got < 50 {
		t.Errorf("%d fields were compared: the search is broken", got)
	}
	compareServices(t, theirs.Services().ByName("ResourceService"),
		resourcegrpc.File_resourcepb_resourcegrpc_service_proto.Services().ByName("ResourceService"), ours)
}

// renaming maps a full name of the published schema to another schema.
type renaming func(protoreflect.FullName) protoreflect.FullName

// compareMessages compares the fields of messages by number, and returns the number of fields.
func compareMessages(t *testing.T, theirs, own protoreflect.MessageDescriptors, name renaming) (fields int) {
	t.Helper()
	for i := range theirs.Len() {
		m := theirs.Get(i)
		o := own.ByName(m.Name())
		if o == nil {
			t.Errorf("%s is missing", m.FullName())
			continue
		}
		for j := range m.Fields().Len() {
			fields++
			compareFields(t, m.Fields().Get(j), o.Fields().ByNumber(m.Fields().Get(j).Number()), name)
		}
		for j := range o.Fields().Len() {
			if f := o.Fields().Get(j); f.Number() < ownFields && m.Fields().ByNumber(f.Number()) == nil {
				t.Errorf("%s has the number %d, but is not in the published schema", f.FullName(), f.Number())
			}
		}
		compareEnums(t, m.Enums(), o.Enums())
		fields += compareMessages(t, m.Messages(), o.Messages(), name)
	}
	return fields
}

// compareFields compares all properties of a field that affect the wire format or JSON.
func compareFields(t *testing.T, theirs, own protoreflect.FieldDescriptor, name renaming) {
	t.Helper()
	if own == nil {
		t.Errorf("%s is missing", theirs.FullName())
		return
	}
	type field struct {
		Name, JSONName, OneOf, Type string
		Kind                        protoreflect.Kind
		Cardinality                 protoreflect.Cardinality
		Map, Packed, Presence       bool
	}
	describe := func(f protoreflect.FieldDescriptor, name renaming) field {
		d := field{
			Name: string(f.Name()), JSONName: f.JSONName(), Kind: f.Kind(), Cardinality: f.Cardinality(),
			Map: f.IsMap(), Packed: f.IsPacked(), Presence: f.HasPresence(),
		}
		if f.ContainingOneof() != nil {
			d.OneOf = string(f.ContainingOneof().Name())
		}
		if f.Message() != nil {
			d.Type = string(name(f.Message().FullName()))
		}
		if f.Enum() != nil {
			d.Type = string(name(f.Enum().FullName()))
		}
		return d
	}
	same := func(n protoreflect.FullName) protoreflect.FullName { return n }
	if want, got := describe(theirs, name), describe(own, same); got != want {
		t.Errorf("%s is %+v here, and %+v in the published schema", own.FullName(), got, want)
	}
}

// compareEnums compares the values of enums by number.
func compareEnums(t *testing.T, theirs, own protoreflect.EnumDescriptors) {
	t.Helper()
	for i := range theirs.Len() {
		e := theirs.Get(i)
		o := own.ByName(e.Name())
		if o == nil || o.Values().Len() != e.Values().Len() {
			t.Errorf("%s is missing, or has other values", e.FullName())
			continue
		}
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			if w := o.Values().ByNumber(v.Number()); w == nil || w.Name() != v.Name() {
				t.Errorf("%s is missing, or has another number", v.FullName())
			}
		}
	}
}

// compareServices compares the methods of a service by name, in both directions.
func compareServices(t *testing.T, theirs, own protoreflect.ServiceDescriptor, name renaming) {
	t.Helper()
	if theirs.Methods().Len() != own.Methods().Len() {
		t.Errorf("%s has %d methods, and %s %d", own.FullName(), own.Methods().Len(), theirs.FullName(), theirs.Methods().Len())
	}
	for i := range theirs.Methods().Len() {
		m := theirs.Methods().Get(i)
		o := own.Methods().ByName(m.Name())
		if o == nil {
			t.Errorf("%s is missing", m.FullName())
			continue
		}
		if o.Input().FullName() != name(m.Input().FullName()) || o.Output().FullName() != name(m.Output().FullName()) ||
			o.IsStreamingClient() != m.IsStreamingClient() || o.IsStreamingServer() != m.IsStreamingServer() {
			t.Errorf("%s has other parameters or results than %s", o.FullName(), m.FullName())
		}
	}
}

// Reflection returns the published schema with our additions for the published name, in a process that links the published schema too.
func TestReflectedSchema(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		same := func(n protoreflect.FullName) protoreflect.FullName { return n }
		theirs := pbresource.File_pbresource_resource_proto
		found := reflectedFile(limited(t), t, s, pbresource.ResourceService_ServiceDesc.ServiceName)
		if got := compareMessages(t, theirs.Messages(), found.Messages(), same); got < 50 {
			t.Errorf("%d fields were compared: the search is broken", got)
		}
		compareServices(t, theirs.Services().ByName("ResourceService"), found.Services().ByName("ResourceService"), same)
		limit := found.Messages().ByName("ListRequest").Fields().ByName("limit")
		if limit == nil || limit.Number() != ownFields {
			t.Errorf("the limit of a list is %v: fields of our own are missing", limit)
		}
		// The same holds for our own name.
		own := reflectedFile(limited(t), t, s, resourcegrpc.ResourceService_ServiceDesc.ServiceName)
		compareServices(t, theirs.Services().ByName("ResourceService"), own.Services().ByName("ResourceService"), ours)
	})
}

// reflectedFile returns the file of reflection's answer for a symbol.
func reflectedFile(ctx context.Context, t *testing.T, s *server, symbol string) protoreflect.FileDescriptor {
	t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(s.cc).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, raw := range answer.GetFileDescriptorResponse().GetFileDescriptorProto() {
		file := &descriptorpb.FileDescriptorProto{}
		if err := proto.Unmarshal(raw, file); err != nil {
			t.Fatal(err)
		}
		set.File = append(set.File, file)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	found, err := files.FindDescriptorByName(protoreflect.FullName(symbol))
	if err != nil {
		t.Fatalf("reflection of %s: %v (%v)", symbol, err, answer.GetErrorResponse())
	}
	return found.ParentFile()
}
