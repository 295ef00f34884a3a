package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/typed"
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

// routeV1 is the payload that older clients know, and routeV2 the stored one.
type (
	routeV1 struct {
		Host string `json:"host"`
	}
	routeV2 struct {
		Address address `json:"address"`
		Weight  int     `json:"weight,omitempty"`
	}
	address struct {
		Host   string `json:"host"`
		Secure bool   `json:"secure,omitempty"`
	}
)

// A client of v1 changes a resource of v2, and the fields that only v2 has remain.
func ExampleConvertJSON() {
	v1, v2 := typed.NewType("shop", "v1", "Route"), typed.NewType("shop", "v2", "Route")
	types, err := registry.New(
		registry.Type{Type: v2, Proto: &structpb.Struct{}, Scope: registry.ScopeNamespace},
		registry.Type{
			Type: v1, Proto: &structpb.Struct{}, Scope: registry.ScopeNamespace,
			Conversion: registry.ConvertJSON("v2",
				func(in routeV2) (routeV1, error) { return routeV1{Host: in.Address.Host}, nil },
				func(in routeV1, _ *routeV2) (routeV2, error) { return routeV2{Address: address{Host: in.Host}}, nil }),
		},
	)
	if err != nil {
		log.Fatal(err)
	}
	store := inmem.New(nil)
	defer store.Close()
	ctx, client := context.Background(), service.New(store, types, nil).Client()
	write := func(t *resourcepb.Type, payload map[string]any) {
		data, _ := structpb.NewStruct(payload)
		encoded, _ := anypb.New(data)
		_, err := client.Write(ctx, &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: &resourcepb.ID{Type: t, Name: "cart"}, Data: encoded}})
		if err != nil {
			log.Fatal(err)
		}
	}
	write(v2, map[string]any{"address": map[string]any{"host": "a.example", "secure": true}, "weight": 5})
	write(v1, map[string]any{"host": "b.example"})
	for _, t := range []*resourcepb.Type{v1, v2} {
		read, err := client.Read(ctx, &resourcepb.ReadRequest{Id: &resourcepb.ID{Type: t, Name: "cart"}})
		if err != nil {
			log.Fatal(err)
		}
		data := &structpb.Struct{}
		if err := read.GetResource().GetData().UnmarshalTo(data); err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.GetGroupVersion(), data.AsMap())
	}
	// Output:
	// v1 map[host:b.example]
	// v2 map[address:map[host:b.example secure:true] weight:5]
}
