// Package controller runs control loops over the resources of a resource service: a reconciler brings the world to the state that a resource
// describes, again and again.
//
//	controller.NewController("replica-sets", setType).
//		WithWatch(podType, dependency.MapOwner).
//		WithReconciler(controller.Typed(scale))
//
// A [Manager] runs controllers. It keeps one copy of each watched type in memory, maps changes to requests for managed resources, and calls the
// reconcilers. Package controller/dependency has mappers, and controller/controllertest a test environment. docs/controllers.md has a tutorial.
//
// # Guarantees
//
//  1. No reconcile starts before the cache has all watched types.
//  2. After the last change of a resource, of anything that maps to it, or of a mapping, the resource is reconciled. Mappers get the old and the
//     new state of a change, so both ends of a reference that moves are reconciled.
//  3. A resource is reconciled by one worker at a time.
//  4. Each reconcile reads, in Cache, the acknowledged writes of all earlier reconciles of this process. If the outcome of a write is unknown, the
//     next reconcile of the resource that caused it starts only after the written resource was read.
//  5. With a lease, a write of a tenure that has ended fails and changes nothing, also after a pause of the process. The first reconcile of a tenure
//     reads all writes of earlier ones.
//  6. Resources that exist when a controller starts are reconciled after those that change, but they are never starved.
//
// States between two reconciles may be skipped. Types have no common cut: a reconcile may read a newer state of one type than of another. A
// deletion while no process runs the controller causes no reconcile of the deleted resource: use a finalizer if something must be undone.
package controller
