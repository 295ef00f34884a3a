package registry_test

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

func ExampleNew() {
	types, err := registry.New(registry.Type{
		Type:  &resourcepb.Type{Group: "jobs", GroupVersion: "v1", Kind: "Schedule"},
		Proto: &durationpb.Duration{},
		Scope: registry.ScopeNamespace,
		Validate: registry.Decoded(func(r *registry.Resource[*durationpb.Duration]) error {
			if r.Data.AsDuration() <= 0 {
				return errors.New("the time between two runs must be positive")
			}
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	found, _ := types.Resolve(&resourcepb.Type{Group: "jobs", GroupVersion: "v1", Kind: "Schedule"})
	fmt.Println(found.Scope, found.Validate(&resourcepb.Resource{}))
	// Output: namespace the time between two runs must be positive
}
