package registry

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Scope defines the units of a tenancy of a type's resources. The numbers are the same as in the compatible API.
type Scope int

const (
	// ScopeUndefined makes New use the scope that the payload's message declares.
	ScopeUndefined Scope = iota
	// ScopeCluster is for resources without a partition and a namespace.
	ScopeCluster
	// ScopePartition is for resources in a partition, without a namespace.
	ScopePartition
	// ScopeNamespace is for resources in a namespace of a partition.
	ScopeNamespace
)

// String returns the scope in lower case, such as "namespace".
func (s Scope) String() string {
	switch s {
	case ScopeUndefined:
		return "undefined"
	case ScopeCluster:
		return "cluster"
	case ScopePartition:
		return "partition"
	case ScopeNamespace:
		return "namespace"
	}
	return fmt.Sprintf("Scope(%d)", int(s))
}

// specOption is the number of the message option that declares the scope of a resource type, in field 1 of its message. The option
// is read from the descriptor's bytes and never registered: a program may link the package that registers it.
const specOption = 8500

// DeclaredScope returns the scope that the schema of a message declares by the option 8500, or ScopeUndefined.
func DeclaredScope(m protoreflect.MessageDescriptor) Scope {
	options, err := proto.Marshal(m.Options())
	if err != nil {
		return ScopeUndefined
	}
	spec := field(options, specOption, protowire.BytesType)
	value, n := protowire.ConsumeBytes(spec)
	if n < 0 {
		return ScopeUndefined
	}
	scope, n := protowire.ConsumeVarint(field(value, 1, protowire.VarintType))
	if n < 0 {
		return ScopeUndefined
	}
	return Scope(scope)
}

// field returns the rest of a message from the value of the last field with this number and wire type, or nil.
func field(message []byte, number protowire.Number, typ protowire.Type) (value []byte) {
	for len(message) > 0 {
		num, t, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if num == number && t == typ {
			value = message
		}
		if n = protowire.ConsumeFieldValue(num, t, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return value
}
