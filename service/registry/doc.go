// Package registry says which types of resources a resource service takes, and what is particular about each: how far its names reach,
// which message its payload is, how a resource is completed and checked before it is stored, and who may read, write and list it.
//
// A registry is made once, from all its types, and never changes, so that looking a type up takes no lock:
//
//	types, err := registry.New(
//		registry.Type{
//			Type:  &resourcepb.Type{Group: "catalog", GroupVersion: "v1", Kind: "Service"},
//			Proto: &catalogpb.Service{},
//			Scope: registry.ScopeNamespace,
//			Validate: registry.Decoded(func(r *registry.Resource[*catalogpb.Service]) error {
//				if r.Data.GetPort() == 0 {
//					return errors.New("port is required")
//				}
//				return nil
//			}),
//		},
//	)
//
// New reports everything that is wrong with any of them at once. Package service serves the types of a registry.
package registry
