package driver

import (
	"fmt"

	"github.com/ashlar-dev/storage"
)

// Stored is the state of a key. Nothing is stored if Exists is false.
type Stored struct {
	Exists       bool
	Uid, Version string
}

// Decide reports whether the mutation changes a key in this state, or returns the error that refuses it. It is the decision table
// of the contract, shared by all drivers. For a damaged resource whose uid is lost, the driver passes the mutation's uid: a caller
// that knows the version may replace or delete it.
func (m *Mutation) Decide(s Stored) (changes bool, err error) {
	switch m.Verb {
	case Write:
		err = compare(s, m.Uid, m.Version)
		return err == nil, err
	case Delete:
		switch {
		case m.Present && !s.Exists:
			return false, fmt.Errorf("%w: nothing is stored", storage.ErrCASFailure)
		case m.Present && s.Uid != m.Uid:
			return false, storage.ErrWrongUid
		case !s.Exists || s.Uid != m.Uid:
			return false, nil
		case s.Version != m.Version:
			return false, storage.ErrCASFailure
		}
		return true, nil
	case Check:
		if m.Version == "" && m.Uid == "" && s.Exists { // a check for absence needs no uid
			return false, fmt.Errorf("%w: the resource exists", storage.ErrCASFailure)
		}
		return false, compare(s, m.Uid, m.Version)
	}
	return false, fmt.Errorf("%w: unknown verb %d", storage.ErrInvalid, m.Verb)
}

// compare compares the state of a key with an expected uid and version. Version "" expects that nothing is stored.
func compare(s Stored, uid, version string) error {
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
