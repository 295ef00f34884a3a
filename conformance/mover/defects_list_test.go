package mover

import "sync/atomic"

// shared is what the handles of one store share beside it.
type shared struct {
	writes atomic.Int64
	lists  atomic.Int64
	stale  atomic.Bool
}

// A defect is a backend that is wrong in one way, with the rule that has to find it and what it has to say.
type defect struct {
	bug   string
	by    string
	says  string // a regular expression
	spoil func(h *handle, s *shared)
}

var defects = []defect{
	{"notes are overwritten", "notes", "creating it again: got <nil>", func(h *handle, _ *shared) { h.GuardedMover = overwriting{h.GuardedMover} }},
	{"notes have one revision", "notes", "must differ", func(h *handle, _ *shared) { h.GuardedMover = unrevised{h.GuardedMover} }},
	{"notes are the handle's own", "notes", "creating it again: got <nil>", func(h *handle, _ *shared) { h.GuardedMover = private(h.GuardedMover) }},
	{"deletes ignore the revision", "notes", "deleting an old revision: got <nil>", func(h *handle, _ *shared) { h.GuardedMover = deleting{h.GuardedMover} }},
	{"deleting none fails", "notes", "another|CAS|compare-and-swap", func(h *handle, _ *shared) { h.GuardedMover = once{h.GuardedMover} }},
	{"large notes are cut", "notes", "the other handle's note: got 65535 bytes", func(h *handle, _ *shared) { h.GuardedMover = cutting{h.GuardedMover} }},
	{"empty notes are none", "notes", "an empty note", func(h *handle, _ *shared) { h.GuardedMover = emptyIsNone{h.GuardedMover} }},
	{"names have no bounds", "limits of notes", `writing a note named "": got <nil>, expected ErrInvalid`, func(h *handle, _ *shared) { h.GuardedMover = boundless{h.GuardedMover} }},
	{"values have no bound", "limits of notes", "one byte too many: got <nil>", func(h *handle, _ *shared) { h.GuardedMover = boundless{h.GuardedMover} }},
	{"notes are resources", "notes and fence are hidden", "the watch shows more", func(h *handle, _ *shared) { h.GuardedMover = visible{h.GuardedMover, h.Backend} }},
	{"a fence that does nothing", "fence refuses all writes", `Closed:false`, func(h *handle, _ *shared) { h.GuardedMover = unfenced{h.GuardedMover} }},
	{"the first target stays", "fence refuses all writes", "Target:etcd://first", func(h *handle, _ *shared) { h.GuardedMover = firstTarget{h.GuardedMover} }},
	{"updates pass the fence", "fence refuses all writes", "update: got <nil>", func(h *handle, _ *shared) { h.Backend = updatesPass{h.Backend} }},
	{"deletes pass the fence", "fence refuses all writes", "delete: got <nil>", func(h *handle, _ *shared) { h.Backend = deletesPass{h.Backend} }},
	{"transactions pass the fence", "fence refuses all writes", "larger transaction: got <nil>", func(h *handle, _ *shared) { h.commit = passing }},
	{"the fence refuses notes", "fence refuses all writes", "moved", func(h *handle, _ *shared) { h.GuardedMover = fencedNotes{h.GuardedMover} }},
	{"the fence stays closed", "fence is opened", "Closed:true", func(h *handle, _ *shared) { h.GuardedMover = stuck{h.GuardedMover} }},
	{"the fence comes late", "nothing is acknowledged after the fence", "and .* later|was acknowledged, but was not there", func(h *handle, s *shared) {
		h.Backend, h.GuardedMover = counting{h.Backend, s}, &late{GuardedMover: h.GuardedMover, s: s}
	}},
	{"what the fence refuses is acknowledged", "nothing is acknowledged after the fence", "was acknowledged, but was not there", func(h *handle, _ *shared) { h.Backend = &lying{Backend: h.Backend} }},
	{"epochs are not compared", "epochs", "an epoch that never was: got <nil>", func(h *handle, _ *shared) { h.GuardedMover = anyEpoch{h.GuardedMover} }},
	{"a conflict changes the fence", "epochs", "it changed the fence", func(h *handle, _ *shared) { h.GuardedMover = changing{h.GuardedMover} }},
	{"what is open keeps its epoch", "epochs", "expected another epoch|opening an open store", func(h *handle, _ *shared) { h.GuardedMover = lazyOpening{h.GuardedMover} }},
	{"epochs come again", "epochs", "expected another epoch", func(h *handle, _ *shared) { h.GuardedMover = twoEpochs{h.GuardedMover} }},
	{"writes ignore guards", "guards", "create: got <nil>, expected ErrSuperseded", func(h *handle, _ *shared) { h.Backend = unguarded{h.Backend} }},
	{"transactions ignore guards", "guards", "transaction: got <nil>, expected ErrSuperseded", func(h *handle, _ *shared) { h.commit = withoutGuard(h.Backend) }},
	{"a guard holds up others", "guards", "beside it: ", func(h *handle, s *shared) { h.Backend = contagious{h.Backend, s} }},
	{"loads ignore guards", "guarded loads", "got <nil>, expected ErrSuperseded", func(h *handle, _ *shared) { h.Loader = unguardedLoader{h.Loader} }},
	{"steps end at the first", "steps", "rows, or out of order", func(h *handle, _ *shared) { h.BulkReader = oneStep{h.BulkReader} }},
	{"steps go backwards", "steps", "out of order", func(h *handle, _ *shared) { h.BulkReader = backwards{h.BulkReader} }},
	{"a step has one row too many", "steps", "limit 1: got 2 rows", func(h *handle, _ *shared) { h.BulkReader = generous{h.BulkReader} }},
	{"steps have no bound of bytes", "steps", "bytes together", func(h *handle, _ *shared) { h.BulkReader = whole{h.BulkReader} }},
	{"rows have no version", "steps", "is not what was written", func(h *handle, _ *shared) { h.BulkReader = versionless{h.BulkReader} }},
	{"owners are not loaded", "content", "expected", func(h *handle, _ *shared) { h.Loader = ownerless{h.Backend} }},
	{"the last row is not loaded", "content", "the list holds 999", func(h *handle, _ *shared) { h.Loader = short{h.Loader} }},
	{"loads replace", "all or nothing", "one is there: got <nil>", func(h *handle, _ *shared) { h.Loader = replacing{h.Backend} }},
	{"loads stop in the middle", "all or nothing", "the store holds", func(h *handle, _ *shared) { h.Loader = inParts{h.Backend} }},
	{"loads come twice", "watches", "event", func(h *handle, _ *shared) { h.Loader = twice{h.Loader, h.Backend} }},
}
