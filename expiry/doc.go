// Package expiry deletes resources whose time to live has passed.
//
// The time to live is a field of a resource, Ttl, and belongs to a version: a write sets it, and a write without it clears it. An Expirer watches
// a store and deletes each resource whose version it has observed for that time:
//
//	expirer := expiry.New(backend, nil)
//	go expirer.Run(ctx)
//
// The commands `ashlar serve` and `ashlar expire` run an Expirer.
//
// # Guarantees
//
// A resource is never deleted early, whatever the clocks do:
//
//  1. The time starts when this Expirer first observes the version, which is after its commit, by the monotonic clock of its process. No two clocks
//     are compared.
//  2. The deletion names the version. The store refuses it if the resource was written meanwhile, even if the Expirer was paused or its watch is
//     behind, and has not observed the write. The Expirer then reads the stored version, and its time starts.
//
// The second rule also makes an election unnecessary. Any number of Expirers may run over one store. All of them keep the same deadlines, so
// deletions stay on time if a process fails. Before each attempt an Expirer waits for a random delay, at most a tenth of the time to live and at most
// a second, so that two processes rarely delete the same resource.
//
// A resource outlives its time to live by this delay and by the lag of the watch. An Expirer that starts counts from its own first observation, so
// the time starts again if no process has observed the version throughout: one restart of all processes at most doubles it. It also starts again in
// another store, after a migration or an import.
//
// A holder that renews a resource by writing it again should count from before its last successful write, because that is when the time can start.
//
// # Costs
//
// An Expirer watches all types and tenancies. It reads the whole store when it starts, and again if its watch has ended, and
// keeps in memory the id and the version of each resource with a time to live. Each change of the store costs it about 3 µs of CPU time.
package expiry
