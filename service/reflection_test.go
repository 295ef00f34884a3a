package service_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// payload returns an empty message whose schema is not linked. It has a field of a message from an imported file.
func payload(t *testing.T) proto.Message {
	t.Helper()
	field := func(typ descriptorpb.FieldDescriptorProto_Type, of *string) []*descriptorpb.FieldDescriptorProto {
		return []*descriptorpb.FieldDescriptorProto{{
			Name: proto.String("f"), Number: proto.Int32(1), Type: typ.Enum(), TypeName: of,
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}}
	}
	set, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		{
			Name: proto.String("music/label.proto"), Package: proto.String("music"), Syntax: proto.String("proto3"),
			MessageType: []*descriptorpb.DescriptorProto{{
				Name: proto.String("Label"), Field: field(descriptorpb.FieldDescriptorProto_TYPE_STRING, nil),
			}},
		},
		{
			Name: proto.String("music/song.proto"), Package: proto.String("music"), Syntax: proto.String("proto3"),
			Dependency: []string{"music/label.proto"},
			MessageType: []*descriptorpb.DescriptorProto{{
				Name: proto.String("Song"), Field: field(descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, proto.String(".music.Label")),
			}},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := set.FindDescriptorByName("music.Song")
	if err != nil {
		t.Fatal(err)
	}
	return dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
}

// reflectedFiles returns the linked files of reflection's answer for a symbol.
func reflectedFiles(ctx context.Context, t *testing.T, cc *grpc.ClientConn, symbol string) *protoregistry.Files {
	t.Helper()
	stream, err := reflectionv1.NewServerReflectionClient(cc).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if refused := answer.GetErrorResponse(); refused != nil {
		t.Fatalf("reflection of %s: %v", symbol, refused)
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
		t.Fatalf("the files that reflection answers %s with do not fit together: %v", symbol, err)
	}
	return files
}

func TestReflection(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	songs := registry.Type{
		Type: &resourcepb.Type{Group: "music", GroupVersion: "v1", Kind: "Song"}, Proto: payload(t), Scope: registry.ScopeNamespace,
	}
	cc := dial(t, func(s *grpc.Server) {
		server := newServer(t, songs)
		server.Register(s)
		server.RegisterReflection(s)
	})

	for name, other := range map[string]string{ourName: consulName, consulName: ourName} {
		found, err := reflectedFiles(ctx, t, cc, name).FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			t.Fatal(err)
		}
		methods := found.(protoreflect.ServiceDescriptor).Methods()
		if methods.Len() != 8 {
			t.Errorf("%s has %d methods, expected 8", name, methods.Len())
		}
		for i := range methods.Len() {
			m := methods.Get(i)
			for _, message := range []protoreflect.MessageDescriptor{m.Input(), m.Output()} {
				if message.ParentFile().Package() != found.ParentFile().Package() {
					t.Errorf("%s takes or returns %s", m.FullName(), message.FullName())
				}
			}
			if stream := m.Name() == "WatchList"; m.IsStreamingServer() != stream || m.IsStreamingClient() {
				t.Errorf("%s streams: server %t, client %t", m.FullName(), m.IsStreamingServer(), m.IsStreamingClient())
			}
		}
		if _, err := reflectedFiles(ctx, t, cc, name).FindDescriptorByName(protoreflect.FullName(other)); err == nil {
			t.Errorf("the schema of %s holds %s", name, other)
		}
	}

	// A client without the schema can read and write payloads.
	song := reflectedFiles(ctx, t, cc, "music.Song")
	if _, err := song.FindDescriptorByName("music.Label"); err != nil {
		t.Errorf("the imports of the payload's schema: %v", err)
	}
	reflectedFiles(ctx, t, cc, "music.Label.f")
	if _, err := protoregistry.GlobalFiles.FindDescriptorByName("hashicorp.consul.resource.Type"); err == nil {
		t.Error("reflection registers the compatible schema globally, which conflicts with a linked one")
	}
}

func TestReflectionListsBothNames(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cc := dial(t, func(s *grpc.Server) {
		server := newServer(t)
		server.Register(s)
		server.RegisterReflection(s)
	})
	// The messages of the older version, which is deprecated but widely used, are the same.
	v1 := listServices(ctx, t, cc, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
	v1alpha := listServices(ctx, t, cc, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
	want := []string{"ashlar.resource.v1.HistoryService", ourName, "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection", consulName}
	if !slices.Equal(v1, want) || !slices.Equal(v1alpha, want) {
		t.Errorf("reflection lists %q, in its older version %q, expected %q", v1, v1alpha, want)
	}
}

// listServices returns the services that the reflection method lists.
func listServices(ctx context.Context, t *testing.T, cc *grpc.ClientConn, method string) (names []string) {
	t.Helper()
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	req := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
	if err := stream.SendMsg(req); err != nil {
		t.Fatal(err)
	}
	answer := &reflectionv1.ServerReflectionResponse{}
	if err := stream.RecvMsg(answer); err != nil {
		t.Fatal(err)
	}
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	return names
}
