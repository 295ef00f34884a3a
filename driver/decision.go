package driver

import (
	"fmt"

	"github.com/ashlar-dev/storage"
)

// Stored is what a store holds under a key: nothing if Exists is false.
type Stored struct {
	Exists       bool
	Uid, Version string
}

// Decide says what a mutation does where this is stored: whether it changes anything, or the error by which it is refused. It is the
// decision table of the contract, in one place for all drivers. Of something damaged, whose uid the database does not tell any more,
// the uid is said to be the mutation's: whoever knows the version may replace or delete it.
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
		if m.Version == "" && m.Uid == "" && s.Exists { // who demands absence need not know a uid
			return false, fmt.Errorf("%w: the resource exists", storage.ErrCASFailure)
		}
		return false, compare(s, m.Uid, m.Version)
	}
	return false, fmt.Errorf("%w: unknown verb %d", storage.ErrInvalid, m.Verb)
}

// compare holds what is stored against a uid and a version; version "" expects nothing.
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
