package driver

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
)

var present = Stored{Exists: true, Uid: "u", Version: "1"}

func TestDecide(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name          string
		stored        Stored
		uid, version  string
		write         error
		remove        bool
		del           error
		deletePresent error
		check         error
	}{
		{name: "absent, no version", uid: "u", deletePresent: storage.ErrCASFailure},
		{name: "absent, a version", uid: "u", version: "1", write: storage.ErrCASFailure, deletePresent: storage.ErrCASFailure, check: storage.ErrCASFailure},
		{name: "another uid, no version", stored: present, uid: "x", write: storage.ErrWrongUid, deletePresent: storage.ErrWrongUid, check: storage.ErrWrongUid},
		{name: "another uid, the version", stored: present, uid: "x", version: "1", write: storage.ErrWrongUid, deletePresent: storage.ErrWrongUid, check: storage.ErrWrongUid},
		{
			name: "no version", stored: present, uid: "u",
			write: storage.ErrCASFailure, del: storage.ErrCASFailure, deletePresent: storage.ErrCASFailure, check: storage.ErrCASFailure,
		},
		{
			name: "another version", stored: present, uid: "u", version: "2",
			write: storage.ErrCASFailure, del: storage.ErrCASFailure, deletePresent: storage.ErrCASFailure, check: storage.ErrCASFailure,
		},
		{name: "the version", stored: present, uid: "u", version: "1", remove: true},
	} {
		for _, want := range []struct {
			verb    Verb
			present bool
			changes bool
			err     error
		}{
			{Write, false, row.write == nil, row.write}, {Delete, false, row.remove, row.del}, {Delete, true, row.remove, row.deletePresent},
			{Check, false, false, row.check},
		} {
			m := Mutation{Verb: want.verb, Uid: row.uid, Version: row.version, Present: want.present}
			if changes, err := m.Decide(row.stored); changes != want.changes || !errors.Is(err, want.err) {
				t.Errorf("%s: verb %d: %v, %v, expected %v, %v", row.name, want.verb, changes, err, want.changes, want.err)
			}
		}
	}
	absent := Mutation{Verb: Check}
	if _, err := absent.Decide(present); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("a check for absence without a uid: %v", err)
	}
	if _, err := absent.Decide(Stored{}); err != nil {
		t.Errorf("a check for absence without a uid: %v", err)
	}
	nameless := Mutation{Verb: Delete, Version: "1"}
	if changes, err := nameless.Decide(present); changes || err != nil {
		t.Errorf("a delete without a uid: %v, %v", changes, err)
	}
	if _, err := (&Mutation{}).Decide(present); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("no verb: %v", err)
	}
}
