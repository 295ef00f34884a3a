package sqlite

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A caller that has left may do with its message as it likes, although the writer still has the request: a commit that fails is
// carried out once more.
func TestCallerReusesMessage(t *testing.T) {
	t.Parallel()
	s, f := openFaulty(t)
	owner := fixture.Write(t, s, resource("owner", 1))
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	full := func() {
		leave()
		<-left
	}
	f.onFullWrite.Store(&full)
	f.failWrites.Store(1)
	child := resource("child", 1)
	child.Owner = owner.Id
	groupVersion := child.Id.Type.GroupVersion
	if _, err := s.WriteCAS(ctx, child); !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, expected ErrInconsistent and the context's error", err)
	}
	child.Id.Type.GroupVersion = "the caller's"
	close(left)
	fixture.Write(t, s, resource("later", 1)) // the request before it has been carried out by now
	ids, err := s.OwnerReferences(t.Context(), owner.Id)
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) != 1 || ids[0].Name != "child" || ids[0].Type.GroupVersion != groupVersion {
		t.Errorf("the owner has %v, expected the child with group version %q", ids, groupVersion)
	}
}
