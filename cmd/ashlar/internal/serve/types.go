package serve

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// typeFile is the file in a directory of descriptor sets that names types in addition to the messages that declare a scope.
const typeFile = "types.yaml"

// readTypes returns the types in a directory: the messages in its descriptor sets (*.binpb, *.pb) that declare a scope by the option 8500,
// and the types in types.yaml. For a message that declares a scope, the group and version are the last two parts of its package, and the
// kind is its name: acme.catalog.v1.Service is catalog.v1.Service. For other names use types.yaml.
func readTypes(dir string) ([]registry.Type, error) {
	files, err := readDescriptorSets(dir)
	if err != nil {
		return nil, err
	}
	named, err := readTypeFile(filepath.Join(dir, typeFile), files)
	if err != nil {
		return nil, err
	}
	types := named
	var errs []error
	for _, m := range messagesWithScope(files) {
		if slices.ContainsFunc(named, func(t registry.Type) bool { return descriptor(t).FullName() == m.FullName() }) {
			continue // types.yaml takes precedence
		}
		parts := strings.Split(string(m.ParentFile().Package()), ".")
		if len(parts) < 2 {
			errs = append(errs, fmt.Errorf("%s declares a scope, but its package has no group and version at the end: name its type in %s", m.FullName(), typeFile))
			continue
		}
		types = append(types, registry.Type{
			Type:  &resourcepb.Type{Group: parts[len(parts)-2], GroupVersion: parts[len(parts)-1], Kind: string(m.Name())},
			Proto: dynamicpb.NewMessage(m), Scope: registry.DeclaredScope(m),
		})
	}
	if len(types) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("no message of the descriptor sets in %s declares a scope, and there is no %s that names one", dir, typeFile))
	}
	return types, errors.Join(errs...)
}

// messagesWithScope returns the messages that declare a scope, sorted by name.
func messagesWithScope(files *protoregistry.Files) (found []protoreflect.MessageDescriptor) {
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Messages().Len() {
			if m := file.Messages().Get(i); registry.DeclaredScope(m) != registry.ScopeUndefined {
				found = append(found, m)
			}
		}
		return true
	})
	slices.SortFunc(found, func(a, b protoreflect.MessageDescriptor) int { return cmp.Compare(a.FullName(), b.FullName()) })
	return found
}

// readDescriptorSets returns the files of all descriptor sets in a directory. Several sets may contain the same file.
func readDescriptorSets(dir string) (*protoregistry.Files, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the types: %w", err)
	}
	all := &descriptorpb.FileDescriptorSet{}
	from := map[string]string{} // the first set that contained a file
	known := map[string]*descriptorpb.FileDescriptorProto{}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".binpb" && ext != ".pb" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the types: %w", err)
		}
		var set descriptorpb.FileDescriptorSet
		if err := proto.Unmarshal(text, &set); err != nil || len(set.GetFile()) == 0 {
			return nil, fmt.Errorf("%s is not a descriptor set: write it with `buf build -o` or `protoc --include_imports --descriptor_set_out`", path)
		}
		for _, file := range set.GetFile() {
			before := known[file.GetName()]
			switch {
			case before == nil:
				known[file.GetName()], from[file.GetName()] = file, path
				all.File = append(all.File, file)
			case !sameSchema(before, file):
				return nil, fmt.Errorf("the schema %s in %s differs from its copy in %s", file.GetName(), path, from[file.GetName()])
			}
		}
	}
	if len(all.GetFile()) == 0 {
		return nil, fmt.Errorf("no descriptor set (*.binpb, *.pb) in %s", dir)
	}
	addKnownImports(all, known)
	files, err := protodesc.NewFiles(all)
	if err != nil {
		return nil, fmt.Errorf("the descriptor sets in %s: %w (write them with all their imports)", dir, err)
	}
	return files, nil
}

// sameSchema compares two schemas without their comments, which depend on how they were compiled.
func sameSchema(a, b *descriptorpb.FileDescriptorProto) bool {
	bare := func(f *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
		f = proto.CloneOf(f)
		f.SourceCodeInfo = nil
		return f
	}
	return proto.Equal(bare(a), bare(b))
}

// addKnownImports adds missing imports that this program knows: the files of google/protobuf.
func addKnownImports(all *descriptorpb.FileDescriptorSet, known map[string]*descriptorpb.FileDescriptorProto) {
	for i := 0; i < len(all.GetFile()); i++ {
		for _, path := range all.GetFile()[i].GetDependency() {
			if known[path] != nil || !strings.HasPrefix(path, "google/protobuf/") {
				continue
			}
			if file, err := protoregistry.GlobalFiles.FindFileByPath(path); err == nil {
				known[path] = protodesc.ToFileDescriptorProto(file)
				all.File = append(all.File, known[path])
			}
		}
	}
}
