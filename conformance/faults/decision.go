package faults

import "github.com/ashlar-dev/storage"

// refusal is the decision tables: why a part of a call is refused where s is stored; nil if it is not.
func refusal(v verb, given, s state) error {
	nothing := s == state{}
	switch {
	case v == remove && (nothing || s.uid != given.uid):
		return nil
	case nothing && given.version == "":
		return nil
	case nothing:
		return storage.ErrCASFailure
	case s.uid != given.uid && given.uid != "":
		return storage.ErrWrongUid
	case s.version != given.version:
		return storage.ErrCASFailure
	}
	return nil
}
