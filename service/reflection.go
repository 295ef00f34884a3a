package service

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service/registry"
)

// RegisterReflection registers the reflection service of gRPC, as v1 and as v1alpha. It describes all services of r: the resource service under
// both of its names, with the schemas of the payloads of the registry's types, and other services if the program links their schemas. Call it
// before the gRPC server serves.
func (s *Server) RegisterReflection(r reflection.GRPCServer) {
	opts := reflection.ServerOptions{Services: r, DescriptorResolver: &currentSchemas{types: &s.types}}
	reflectionv1.RegisterServerReflectionServer(r, reflection.NewServerV1(opts))
	reflectionv1alpha.RegisterServerReflectionServer(r, reflection.NewServer(opts))
}

// currentSchemas is the resolver of the reflection service, for the types that a server has at the time of a call.
type currentSchemas struct {
	types *atomic.Pointer[registry.Registry]

	mu   sync.Mutex
	of   *registry.Registry // the types of last
	last schemas
}

func (c *currentSchemas) schemas() schemas {
	c.mu.Lock()
	defer c.mu.Unlock()
	types := c.types.Load()
	if types == c.of {
		return c.last
	}
	own := new(protoregistry.Files)
	addFile(own, consulSchema())
	for _, t := range types.Types() {
		addFile(own, t.Proto.ProtoReflect().Descriptor().ParentFile())
	}
	c.of, c.last = types, schemas{own}
	return c.last
}

// FindFileByPath returns the file with a path.
func (c *currentSchemas) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	return c.schemas().FindFileByPath(path)
}

// FindDescriptorByName returns the descriptor with a full name.
func (c *currentSchemas) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return c.schemas().FindDescriptorByName(name)
}

// addFile adds a file and its imports to files. Payloads may come from several sets of schemas: of two files with the same path, or
// with a message of the same name, the first one is kept. A client gets the imports of a file as that file has them, even if files has
// other ones of the same path.
func addFile(files *protoregistry.Files, file protoreflect.FileDescriptor) {
	if file.IsPlaceholder() || files.RegisterFile(file) != nil {
		return
	}
	for i := range file.Imports().Len() {
		addFile(files, file.Imports().Get(i))
	}
}

// schemas resolves descriptors from the files of a server, then from those that the program links. So no file must be registered globally under a
// name that another package of the program may register.
type schemas struct{ files *protoregistry.Files }

// FindFileByPath returns the file with a path.
func (s schemas) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if file, err := s.files.FindFileByPath(path); err == nil {
		return file, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName returns the descriptor with a full name.
func (s schemas) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if found, err := s.files.FindDescriptorByName(name); err == nil {
		return found, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

// consulSchema returns the schema of the compatible API, including our own fields. It is derived from our schemas: the
// messages and the service in one file, in the other package.
var consulSchema = sync.OnceValue(func() protoreflect.FileDescriptor {
	file := protodesc.ToFileDescriptorProto(resourcepb.File_resourcepb_resource_proto)
	services := protodesc.ToFileDescriptorProto(resourcegrpc.File_resourcepb_resourcegrpc_service_proto)
	ours := "." + file.GetPackage() + "."
	file.Name, file.Package = proto.String(consulFile), proto.String(consulPackage)
	file.Options = nil // it names another Go package
	file.Service = services.GetService()
	rename := func(name *string) *string {
		if rest, ok := strings.CutPrefix(*name, ours); ok {
			return proto.String("." + consulPackage + "." + rest)
		}
		return name
	}
	renameFields(file.GetMessageType(), rename)
	for _, service := range file.GetService() {
		for _, m := range service.GetMethod() {
			m.InputType, m.OutputType = rename(m.InputType), rename(m.OutputType)
		}
	}
	derived, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		panic(fmt.Sprintf("service: derive the schema of the compatible API: %v", err))
	}
	return derived
})

// renameFields renames the types of the fields of messages and of their nested messages.
func renameFields(messages []*descriptorpb.DescriptorProto, rename func(*string) *string) {
	for _, m := range messages {
		for _, field := range m.GetField() {
			if field.TypeName != nil {
				field.TypeName = rename(field.TypeName)
			}
		}
		renameFields(m.GetNestedType(), rename)
	}
}
