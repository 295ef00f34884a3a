package registry

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Conversion makes a type a served group version of a kind whose resources are stored in another one. Clients of both versions read and write the same
// resources. The hooks are those of the stored version and get resources of that version; a type with a Conversion has none.
//
// The functions convert decoded payloads; all other fields are the same in every version. They must not modify their arguments, and must return equal
// results for equal arguments.
type Conversion struct {
	// Stored is the group version in which the kind is stored. The registry needs a type of the same group, kind and scope with this version and without
	// a Conversion.
	Stored string
	// FromStored returns the payload in this version for a stored payload. Fields without an equivalent in this version are omitted.
	FromStored func(stored proto.Message) (proto.Message, error)
	// ToStored returns the stored payload for a payload in this version. stored is the stored payload that the result replaces, nil for none.
	//
	// ToStored need not copy the fields that only the stored version has. The registry calls it twice, with the payload that the client could read and
	// with the one that it wrote, and applies only the differences of the results to the stored payload: fields at any depth, keys of maps, and elements
	// of lists, which continue the stored elements as in typed.JSON. So a client changes nothing if it writes the payload that it has read. A write that changes a
	// list of which this version has other elements than the stored version fails, unless ToStored adds the others.
	ToStored func(written, stored proto.Message) (proto.Message, error)
}

// Convert returns a Conversion to the stored group version from functions of the payload messages. The second argument of toStored is the nil message if
// nothing is stored.
func Convert[Served, Stored proto.Message](
	stored string, fromStored func(Stored) (Served, error), toStored func(written Served, stored Stored) (Stored, error),
) *Conversion {
	return &Conversion{
		Stored: stored,
		FromStored: func(m proto.Message) (proto.Message, error) {
			in, ok := m.(Stored)
			if !ok {
				return nil, fmt.Errorf("the conversion is from %T, not from %T", in, m)
			}
			return fromStored(in)
		},
		ToStored: func(written, stored proto.Message) (proto.Message, error) {
			in, ok := written.(Served)
			if !ok {
				return nil, fmt.Errorf("the conversion is from %T, not from %T", in, written)
			}
			current, _ := stored.(Stored)
			return toStored(in, current)
		},
	}
}

// ConversionError is returned, as *ConversionError, for a resource that cannot be converted to another group version.
type ConversionError struct {
	// ID is the id of the resource.
	ID *resourcepb.ID
	// From and To are the group versions.
	From, To string
	// IsWritten reports that a resource of a write request cannot be converted, not a stored resource.
	IsWritten bool
	// Err is the cause.
	Err error
}

// Error implements the error interface.
func (e *ConversionError) Error() string {
	what := "the stored resource"
	if e.IsWritten {
		what = "the resource to write"
	}
	t := e.ID.GetTenancy()
	return fmt.Sprintf("%s %s/%s %q (partition %q, namespace %q) cannot be converted from group version %s to %s: %v", what, e.ID.GetType().GetGroup(),
		e.ID.GetType().GetKind(), e.ID.GetName(), t.GetPartition(), t.GetNamespace(), e.From, e.To, e.Err)
}

// Unwrap returns Err.
func (e *ConversionError) Unwrap() error { return e.Err }
