package typed_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

type ownedValue struct{ A int }

// An owner is the same in each of its group versions: a service stores one of them, whichever the object of the caller has. Otherwise each Apply of a
// controller would write.
func TestOwnerOfAnotherVersion(t *testing.T) {
	t.Parallel()
	object := func(change func(owner *resourcepb.ID)) *typed.Object[ownedValue] {
		o := &typed.Object[ownedValue]{ID: &resourcepb.ID{Name: "child"}, Owner: &resourcepb.ID{
			Uid: "u", Name: "parent", Type: typed.NewType("demo", "v1", "Parent"), Tenancy: typed.NewTenancy("p", "n"),
		}}
		change(o.Owner)
		return o
	}
	stored, codec := object(func(*resourcepb.ID) {}), typed.JSON[ownedValue]()
	for name, c := range map[string]struct {
		change func(owner *resourcepb.ID)
		isSame bool
	}{
		"equal":          {func(*resourcepb.ID) {}, true},
		"group version":  {func(id *resourcepb.ID) { id.Type.GroupVersion = "v2" }, true},
		"uid":            {func(id *resourcepb.ID) { id.Uid = "w" }, false},
		"name":           {func(id *resourcepb.ID) { id.Name = "other" }, false},
		"kind":           {func(id *resourcepb.ID) { id.Type.Kind = "Other" }, false},
		"tenancy":        {func(id *resourcepb.ID) { id.Tenancy.Namespace = "m" }, false},
		"nothing at all": {func(id *resourcepb.ID) { proto.Reset(id) }, false},
	} {
		if got := codec.Same(stored, object(c.change)); got != c.isSame {
			t.Errorf("another %s: the same is %v", name, got)
		}
	}
	if codec.Same(stored, &typed.Object[ownedValue]{ID: stored.ID}) {
		t.Error("an object without an owner is the same")
	}
}
