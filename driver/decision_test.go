package driver

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
)

var there = Stored{Exists: true, Uid: "u", Version: "1"}

func TestTables(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name         string
		stored       Stored
		uid, version string
		write        error
		remove       bool
		del          error
		take         error
		check        error
	}{
		{name: "absent, no version", uid: "u", take: storage.ErrCASFailure},
		{name: "absent, a version", uid: "u", version: "1", write: storage.ErrCASFailure, take: storage.ErrCASFailure, check: storage.ErrCASFailure},
		{name: "another uid, no version", stored: there, uid: "x", write: storage.ErrWrongUid, take: storage.ErrWrongUid, check: storage.ErrWrongUid},
		{name: "another uid, the version", stored: there, uid: "x", version: "1", write: storage.ErrWrongUid, take: storage.ErrWrongUid, check: storage.ErrWrongUid},
		{
			name: "no version", stored: there, uid: "u",
			write: storage.ErrCASFailure, del: storage.ErrCASFailure, take: storage.ErrCASFailure, check: storage.ErrCASFailure,
		},
		{
			name: "another version", stored: there, uid: "u", version: "2",
			write: storage.ErrCASFailure, del: storage.ErrCASFailure, take: storage.ErrCASFailure, check: storage.ErrCASFailure,
		},
		{name: "the version", stored: there, uid: "u", version: "1", remove: true},
	} {
		for _, want := range []struct {
			verb    Verb
			present bool
			changes bool
			err     error
		}{
			{Write, false, row.write == nil, row.write}, {Delete, false, row.remove, row.del}, {Delete, true, row.remove, row.take},
			{Check, false, false, row.check},
		} {
			m := Mutation{Verb: want.verb, Uid: row.uid, Version: row.version, Present: want.present}
			if changes, err := m.Decide(row.stored); changes != want.changes || !errors.Is(err, want.err) {
				t.Errorf("%s: verb %d: %v, %v, expected %v, %v", row.name, want.verb, changes, err, want.changes, want.err)
			}
		}
	}
	absent := Mutation{Verb: Check}
	if _, err := absent.Decide(there); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("a check for absence without a uid: %v", err)
	}
	if _, err := absent.Decide(Stored{}); err != nil {
		t.Errorf("a check for absence without a uid: %v", err)
	}
	nameless := Mutation{Verb: Delete, Version: "1"}
	if changes, err := nameless.Decide(there); changes || err != nil {
		t.Errorf("a delete without a uid: %v, %v", changes, err)
	}
	if _, err := (&Mutation{}).Decide(there); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("no verb: %v", err)
	}
}
