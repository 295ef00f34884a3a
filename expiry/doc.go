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
//     behind, and has not observed the write.
//
// The second rule also makes an election unnecessary. Any number of Expirers may run over one store: they keep the same deadlines, so the next one
// deletes on time if one fails. Each attempts a deletion after a random delay of up to a tenth of the time to live, at most a second, so that one of
// them usually deletes a resource before the others try.
//
// A resource outlives its time to live by this delay, by the lag of the watch, and while no Expirer runs: the time starts again at the first
// observation by an Expirer that has just started. It is thus at most doubled by a restart of all of them. The time also starts again in another
// store, after a migration or an import.
//
// A holder that renews a resource by writing it again should count from before its last successful write, because that is when the time can start.
//
// # Costs
//
// An Expirer watches all types and tenancies. It reads the whole store when it starts, and again if its watch has ended, and
// keeps in memory the id and the version of each resource with a time to live.
package expiry
