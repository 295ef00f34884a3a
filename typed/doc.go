// Package typed reads and writes the resources of one type with their payloads decoded: as protobuf messages, or as Go values by way of JSON.
// No code is generated.
//
//	services := typed.New[*shoppb.Service](backend, &resourcepb.Type{Group: "shop", GroupVersion: "v1", Kind: "Service"})
//
//	created, err := services.Create(ctx, typed.Object[*shoppb.Service]{ID: services.ID(tenancy, "cart"), Data: &shoppb.Service{Port: 80}})
//
//	updated, err := services.Update(ctx, created.ID, func(o *typed.Object[*shoppb.Service]) error {
//		o.Data.Port = 8080
//		return nil
//	})
//
// Update reads, calls the function, and compares and swaps; when another writer was faster it reads again and calls the function again.
// Nothing is written if the function changed nothing.
//
// An [Object] belongs to who got it: changing one changes no other, and nothing in the store.
package typed
