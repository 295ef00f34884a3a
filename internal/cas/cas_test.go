package cas

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
		check        error
	}{
		{name: "absent, no version", uid: "u"},
		{name: "absent, a version", uid: "u", version: "1", write: storage.ErrCASFailure, check: storage.ErrCASFailure},
		{name: "another uid, no version", stored: there, uid: "x", write: storage.ErrWrongUid, check: storage.ErrWrongUid},
		{name: "another uid, the version", stored: there, uid: "x", version: "1", write: storage.ErrWrongUid, check: storage.ErrWrongUid},
		{name: "no version", stored: there, uid: "u", write: storage.ErrCASFailure, del: storage.ErrCASFailure, check: storage.ErrCASFailure},
		{name: "another version", stored: there, uid: "u", version: "2", write: storage.ErrCASFailure, del: storage.ErrCASFailure, check: storage.ErrCASFailure},
		{name: "the version", stored: there, uid: "u", version: "1", remove: true},
	} {
		if err := Write(row.stored, row.uid, row.version); !errors.Is(err, row.write) {
			t.Errorf("%s: Write says %v, expected %v", row.name, err, row.write)
		}
		remove, err := Delete(row.stored, row.uid, row.version)
		if remove != row.remove || !errors.Is(err, row.del) {
			t.Errorf("%s: Delete says %v, %v, expected %v, %v", row.name, remove, err, row.remove, row.del)
		}
		if err := Check(row.stored, row.uid, row.version); !errors.Is(err, row.check) {
			t.Errorf("%s: Check says %v, expected %v", row.name, err, row.check)
		}
	}
	if err := Check(there, "", ""); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("a check for absence without a uid: %v", err)
	}
	if err := Check(Stored{}, "", ""); err != nil {
		t.Errorf("a check for absence without a uid: %v", err)
	}
	if remove, err := Delete(there, "", "1"); remove || err != nil {
		t.Errorf("a delete without a uid: %v, %v", remove, err)
	}
}
