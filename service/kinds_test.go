package service_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// A stored kind is found as given beyond any number of other kinds, among which one may differ in case only.
func TestKindsOfLargeGroup(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	put := func(kind string) {
		if _, err := b.WriteCAS(t.Context(), &resourcepb.Resource{Id: &resourcepb.ID{
			Type: &resourcepb.Type{Group: "core", GroupVersion: "v1", Kind: kind}, Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "n"}, Name: "a", Uid: "u",
		}}); err != nil {
			t.Fatal(err)
		}
	}
	put("APP")
	for i := range 300 {
		put(fmt.Sprintf("Aa%d", i))
	}
	put("App")
	s := service.New(b, registry.NewOpen(registry.Type{}), nil)
	if found, err := s.Kinds(t.Context(), "core", "App", nil); err != nil || !slices.Contains(found, "App") {
		t.Errorf("the kinds of App are %q, %v", found, err)
	}
	if found, err := s.Kinds(t.Context(), "core", "aPP", nil); err != nil || len(found) == 1 {
		t.Errorf("the kinds of aPP are %q, %v: only some kinds were looked at", found, err)
	}
}
