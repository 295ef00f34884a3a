package replica_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/resourcepb"
)

// What has been created and deleted is passed, though nothing is there again.
func TestPassedWhatHasComeAndGone(t *testing.T) {
	t.Parallel()
	ctx := storetest.Context(t)
	b := storetest.Open(t, "mem://")
	r, err := replica.Open(ctx, b, replica.Options[string]{
		Types:  []storage.UnversionedType{storetest.Type},
		Decode: func(res *resourcepb.Resource) string { return res.GetVersion() },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := r.View()
	storetest.Remove(t, b, storetest.Write(t, b, storetest.Resource("a", "")))
	if err := r.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Passed(ctx, before, key.Of(storetest.ID("a")), ""); err != nil {
		t.Fatal(err)
	}
}
