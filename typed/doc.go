// Package typed reads and writes the resources of one type with decoded payloads: as protobuf messages, or as Go values stored as JSON. It needs
// no generated code.
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
// Update reads, calls the function, and writes with compare-and-swap. If another writer was faster, it reads again and calls the function again.
// It writes nothing if the function changes nothing. [Transact] changes several resources, of any types, in one transaction:
//
//	err := typed.Transact(ctx, backend, func(tx *typed.Tx) error {
//		cart, err := services.In(tx).Get(id)
//		if err != nil {
//			return err
//		}
//		cart.Data.Port = 8080
//		return errors.Join(services.In(tx).Put(cart), routes.In(tx).Delete(routeID))
//	})
//
// [Client.Follow] returns the stored resources and then every change, and survives the ends of watches.
//
// The caller owns the [Object] values that it receives: changing one affects neither other objects nor the store.
package typed
