// Package registry holds the types of resources that a resource service serves. A type has a scope, a payload message, hooks that complete and
// validate its resources before they are stored, and hooks that authorize reads, writes and lists.
//
// A registry is created from all its types and never changes, so that lookups take no lock:
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
// A type with a [Conversion] is another group version of a kind: clients of both versions share its resources.
//
// New reports the errors of all types at once. Package service serves the types of a registry.
package registry
