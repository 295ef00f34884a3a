package replica_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A creation followed by a deletion is a change, although the key is absent again.
func TestAwaitChangeAfterCreateAndDelete(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b := fixture.Open(t, "mem://")
	r, err := replica.Open(ctx, b, replica.Options[string]{
		Types:  []storage.UnversionedType{fixture.Type},
		Decode: func(res *resourcepb.Resource) string { return res.GetVersion() },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := r.View()
	fixture.Remove(t, b, fixture.Write(t, b, fixture.Resource("a", "")))
	if err := r.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.AwaitChange(ctx, before, key.Of(fixture.ID("a")), ""); err != nil {
		t.Fatal(err)
	}
}
