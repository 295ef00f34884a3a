package conformance

import (
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var readCases = topic{"Read", []testCase{
	{name: "Table", run: readTable},
	{name: "Strong", needs: needAnother, run: readStrong},
	{name: "EventualCatchesUp", needs: needAnother, run: readEventual},
}}

func readTable(s *suite) {
	stored := s.update(s.create("a"))
	s.create("ab")
	for _, r := range []struct {
		name         string
		key          string
		uid          string
		groupVersion string
		want         error // nil: the resource
		mismatch     bool
	}{
		{"absent", "b", "", "v1", storage.ErrNotFound, false},
		{"absent, with a uid", "b", stored.Id.Uid, "v1", storage.ErrNotFound, false},
		{"only the beginning of a name", "a ", "", "v1", storage.ErrNotFound, false},
		{"another case", "A", "", "v1", storage.ErrNotFound, false},
		{"its uid", "a", stored.Id.Uid, "v1", nil, false},
		{"no uid", "a", "", "v1", nil, false},
		{"another uid", "a", "another-uid", "v1", storage.ErrNotFound, false},
		{"another uid and group version", "a", "another-uid", "v2", storage.ErrNotFound, false},
		{"another group version", "a", stored.Id.Uid, "v2", nil, true},
		{"another group version, no uid", "a", "", "v2", nil, true},
		{"no group version", "a", "", "", nil, true},
	} {
		id := thingID(r.key)
		id.Uid, id.Type.GroupVersion = r.uid, r.groupVersion
		for _, consistency := range consistencies {
			what := "Read with " + r.name + ", " + consistency.String()
			if consistency == eventual && r.want == nil {
				// An eventual read may lag behind writes of this handle, but returns them at last.
				awaitRead(s, s.b, id, stored)
			}
			got, err := s.b.Read(s.ctx, consistency, id)
			switch {
			case r.want != nil:
				s.wantError(what, err, r.want)
			case r.mismatch:
				checkMismatch(s, what, err, id.Type, stored)
			default:
				s.noError(what, err)
				s.equal(what, got, stored)
			}
			if err != nil && got != nil {
				s.Errorf("%s: a resource beside the error", what)
			}
		}
	}
}

// mismatch demands a GroupVersionMismatchError, by value.
func checkMismatch(s *suite, what string, err error, asked *resourcepb.Type, stored *resourcepb.Resource) {
	s.Helper()
	var m storage.GroupVersionMismatchError
	if !errors.As(err, &m) {
		s.Fatalf("%s: got error %v, want a GroupVersionMismatchError, by value", what, quoteError(err))
	}
	s.equal(what+", the requested type", m.RequestedType, asked)
	s.equal(what+", the stored resource", m.Stored, stored)
}

func readStrong(s *suite) {
	other := s.another()
	stored := s.create("a")
	for range s.scale(40) {
		stored = s.update(stored)
		got, err := other.Read(s.ctx, strong, stored.Id)
		s.noError("strong Read through another handle", err)
		s.equal("strong Read through another handle", got, stored)
		list, err := other.List(s.ctx, strong, things, home, "a")
		s.noError("strong List through another handle", err)
		s.equalLists("strong List through another handle", list, []*resourcepb.Resource{stored})
	}
	s.delete(stored)
	_, err := other.Read(s.ctx, strong, stored.Id)
	s.wantError("strong Read of a resource that another handle deleted", err, storage.ErrNotFound)
}

// awaitRead waits until an eventual read through b shows stored, or, where that is nil, shows nothing.
func awaitRead(s *suite, b storage.Backend, id *resourcepb.ID, stored *resourcepb.Resource) {
	s.Helper()
	s.eventually("an eventual Read", func() error {
		got, err := b.Read(s.ctx, eventual, id)
		var m storage.GroupVersionMismatchError
		if errors.As(err, &m) {
			got, err = m.Stored, nil
		}
		if stored == nil && errors.Is(err, storage.ErrNotFound) {
			return nil
		}
		if stored != nil && got.GetVersion() == stored.Version {
			return nil
		}
		return fmt.Errorf("got version %q, error %v, want version %q", got.GetVersion(), quoteError(err), stored.GetVersion())
	})
}

func readEventual(s *suite) {
	other := s.another()
	stored := s.update(s.create("a"))
	awaitRead(s, other, stored.Id, stored)
	s.eventually("an eventual List shows the write of another handle", func() error {
		list, err := other.List(s.ctx, eventual, things, anywhere, "")
		if err != nil {
			return err
		}
		return compareLists(list, []*resourcepb.Resource{stored})
	})
	s.delete(stored)
	awaitRead(s, other, stored.Id, nil)
}
