package driver

import (
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Verb is the kind of a mutation.
type Verb int8

// The verbs.
const (
	Write  Verb = iota + 1 // creates or replaces a resource
	Delete                 // removes a resource
	Check                  // compares and changes nothing
)

// Mutation is one validated operation on one key.
type Mutation struct {
	Verb Verb
	Key  Key
	// Uid and Version are the expected uid and version of the stored resource. With Version "", a Write and a Check expect that
	// nothing is stored. Uid of a Write is also the uid to write.
	Uid, Version string
	// Present makes a Delete fail if nothing is stored to delete.
	Present bool
	// Resource is the resource to write; its Version is ignored. It belongs to the caller of the backend.
	Resource *resourcepb.Resource
	// Exclusive reports that no other change may have the same Revision. A driver that combines the changes of several callers
	// sends an exclusive mutation separately. Only the single mutation of an Apply can be exclusive.
	Exclusive bool
	// NewVersion is the version of the written resource, not empty and never used before for this key. Apply sets it.
	NewVersion string
	// Revision is the number of the commit, or 0 if the mutation changed nothing. Apply of a Historian sets it, to the same number for
	// all mutations that change something.
	Revision int64
	// Final reports that no further change up to Revision can appear. Apply of a Historian may set it for an exclusive mutation,
	// to save the call of Historian.AwaitFinal.
	Final bool
}

// Encode returns a resource as bytes, without its version.
func Encode(res *resourcepb.Resource) ([]byte, error) { return codec.Encode(res) }

// Decode is the inverse of Encode for the data stored under a key, and sets the version. Data that is no resource, or a resource of
// another key, is a *storage.DamagedError.
func Decode(k Key, data []byte, version string) (*resourcepb.Resource, error) {
	return codec.DecodeOf(k, data, version)
}
