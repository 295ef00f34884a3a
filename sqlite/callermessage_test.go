package sqlite

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A caller may reuse its message after it returns, even if the writer still has the request because a failed commit is
// repeated.
func TestCallerReusesMessage(t *testing.T) {
	t.Parallel()
	s, f := openFaulty(t)
	owner := fixture.Write(t, s, resource("owner", 1))
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	full := func() {
		cancel()
		<-returned
	}
	f.onFullWrite.Store(&full)
	f.failWrites.Store(1)
	child := resource("child", 1)
	child.Owner = owner.Id
	groupVersion := child.Id.Type.GroupVersion
	if _, err := s.WriteCAS(ctx, child); !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.Canceled) {
		t.Fatalf("got error %v, expected ErrInconsistent and the context's error", err)
	}
	child.Id.Type.GroupVersion = "the caller's"
	close(returned)
	fixture.Write(t, s, resource("later", 1)) // the writer has executed the earlier request by now
	ids, err := s.OwnerReferences(t.Context(), owner.Id)
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) != 1 || ids[0].Name != "child" || ids[0].Type.GroupVersion != groupVersion {
		t.Errorf("the owner references are %v, expected the child with group version %q", ids, groupVersion)
	}
}
