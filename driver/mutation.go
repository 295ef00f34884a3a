package driver

import (
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Verb says what a mutation does.
type Verb int8

// The verbs.
const (
	Write  Verb = iota + 1 // creates or replaces a resource
	Delete                 // removes a resource
	Check                  // compares and changes nothing
)

// Mutation is one operation on one key, which was checked.
type Mutation struct {
	Verb Verb
	Key  Key
	// Uid and Version are what the caller expects to be stored. For a Write, Version "" expects nothing, and Uid is the uid that
	// is written; for a Check, Version "" expects nothing.
	Uid, Version string
	// Present says of a Delete that it is refused where there is nothing to delete.
	Present bool
	// Resource is what a Write stores, without looking at its Version. It belongs to the caller of the backend.
	Resource *resourcepb.Resource
	// Exclusive says that no other change may have the same Revision: a driver that carries out the changes of several callers together
	// leaves this one out. Only a mutation that is the only one of an Apply has it.
	Exclusive bool
	// NewVersion is the version of what a Write has stored, which is not empty and was never used for this key. Apply sets it.
	NewVersion string
	// Revision is the number of the change, 0 for a mutation that changed nothing. Apply of a Historian sets it.
	Revision int64
	// Settled says that no change up to Revision can appear any more. Apply of a Historian may set it for a mutation that is Alone, which
	// spares it the call that asks for that.
	Settled bool
}

// Encode returns a resource as bytes, without its version.
func Encode(res *resourcepb.Resource) ([]byte, error) { return codec.Encode(res) }

// Decode undoes Encode for what is stored under a key, and sets the version. Bytes that are no resource, or that of another key,
// are a *storage.DamagedError.
func Decode(k Key, data []byte, version string) (*resourcepb.Resource, error) {
	return codec.DecodeOf(k, data, version)
}
