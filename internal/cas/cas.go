// Package cas holds the decision tables of compare-and-swap, written once for all backends.
package cas

import (
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Stored is what a store holds under a key: nothing if Exists is false.
type Stored struct {
	Exists       bool
	Uid, Version string
}

// Write decides whether a write of uid at version may go ahead.
func Write(s Stored, uid, version string) error {
	switch {
	case !s.Exists && version == "":
		return nil
	case !s.Exists:
		return fmt.Errorf("%w: nothing is stored", storage.ErrCASFailure)
	case s.Uid != uid:
		return storage.ErrWrongUid
	case s.Version != version && version == "":
		return fmt.Errorf("%w: the resource exists already", storage.ErrCASFailure)
	case s.Version != version:
		return storage.ErrCASFailure
	}
	return nil
}

// Delete decides what a delete of uid at version does: remove, or nothing (also with an error).
func Delete(s Stored, uid, version string) (remove bool, err error) {
	switch {
	case !s.Exists || s.Uid != uid:
		return false, nil
	case s.Version != version:
		return false, storage.ErrCASFailure
	}
	return true, nil
}

// Check decides whether a check of uid at version holds. Version "" demands that nothing is stored, and then an empty uid
// matches any.
func Check(s Stored, uid, version string) error {
	if version == "" && uid == "" && s.Exists {
		return fmt.Errorf("%w: the resource exists", storage.ErrCASFailure)
	}
	return Write(s, uid, version)
}

// Read decides whether a stored resource answers a read of id.
func Read(stored *resourcepb.Resource, id *resourcepb.ID) error {
	if stored == nil || id.GetUid() != "" && id.GetUid() != stored.GetId().GetUid() {
		return storage.ErrNotFound
	}
	if id.GetType().GetGroupVersion() != stored.GetId().GetType().GetGroupVersion() {
		return storage.GroupVersionMismatchError{RequestedType: id.GetType(), Stored: stored}
	}
	return nil
}
