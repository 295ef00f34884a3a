package serve

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// readTypeFile reads a file of types, if it exists:
//
//	types:
//	  - type: catalog.v1.Service           # group, version and kind
//	    message: acme.inventory.Service    # the payload, from one of the descriptor sets
//	    scope: namespace                   # or partition, or cluster; default: the scope that the message declares
//
// All errors are reported at once, with their lines.
func readTypeFile(path string, files *protoregistry.Files) ([]registry.Type, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the types: %w", err)
	}
	r := yamlReader{file: path}
	var types []registry.Type
	for key, value := range r.document(text) {
		if key.Value != "types" {
			r.unknownKey(key, "types")
			continue
		}
		for _, n := range r.list(value) {
			types = append(types, r.namedType(n, files))
		}
	}
	return types, errors.Join(r.errs...)
}

// namedType reads one entry of types.
func (r *yamlReader) namedType(n *yaml.Node, files *protoregistry.Files) (t registry.Type) {
	before := len(r.errs)
	for key, value := range r.object(n, "type", "message", "scope") {
		switch key.Value {
		case "type":
			t.Type = r.typeName(value)
		case "message":
			found, err := files.FindDescriptorByName(protoreflect.FullName(r.text(value)))
			m, ok := found.(protoreflect.MessageDescriptor)
			if err != nil || !ok {
				r.errorf(value, "no descriptor set has the message %q", value.Value)
				continue
			}
			t.Proto = dynamicpb.NewMessage(m)
		case "scope":
			t.Scope = r.scope(value)
		}
	}
	switch {
	case len(r.errs) > before:
	case t.Type == nil:
		r.errorf(n, "type is missing: group.version.Kind")
	case t.Proto == nil:
		r.errorf(n, "message is missing: the full name of the payload's message")
	case t.Scope == registry.ScopeUndefined && registry.DeclaredScope(descriptor(t)) == registry.ScopeUndefined:
		r.errorf(n, "scope is missing, and the message declares none: expected namespace, partition or cluster")
	}
	return t
}

// typeName reads group.version.Kind. The group may contain dots.
func (r *yamlReader) typeName(n *yaml.Node) *resourcepb.Type {
	parts := strings.Split(r.text(n), ".")
	last := len(parts) - 1
	if last < 2 {
		r.errorf(n, "a type must be group.version.Kind, found %q", n.Value)
		return nil
	}
	return &resourcepb.Type{Group: strings.Join(parts[:last-1], "."), GroupVersion: parts[last-1], Kind: parts[last]}
}

func (r *yamlReader) scope(n *yaml.Node) registry.Scope {
	text := r.text(n)
	for _, s := range []registry.Scope{registry.ScopeNamespace, registry.ScopePartition, registry.ScopeCluster} {
		if s.String() == text {
			return s
		}
	}
	r.errorf(n, "a scope must be namespace, partition or cluster, found %q", text)
	return registry.ScopeUndefined
}

func descriptor(t registry.Type) protoreflect.MessageDescriptor {
	return t.Proto.ProtoReflect().Descriptor()
}
