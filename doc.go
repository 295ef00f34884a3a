// Package storage is one storage contract for control planes, with many databases behind it.
//
// A control plane (a service mesh, a platform, a scheduler) keeps typed resources and needs four things from its store:
// writes that succeed only on the version they were made from, lists, ordered watches, and references from a resource to its
// owner. [Backend] is that contract. The adapters below keep it, each on what its database does best, and package
// conformance proves it.
//
//	inmem     mem://                      in the process; the reference for what the contract means
//	sqlite    sqlite:///path/to/file.db   one durable file, shared by processes of one machine
//	postgres  postgres://host/db          row versions, a change log, LISTEN/NOTIFY
//	etcd      etcd://host:2379/prefix     compare on mod revision, native watches
//	dynamodb  dynamodb://table            conditional writes, streams
//
// Import an adapter for its side effect and open a store by URL:
//
//	import (
//		"github.com/ashlar-dev/storage"
//		_ "github.com/ashlar-dev/storage/sqlite"
//	)
//
//	backend, err := storage.Open(ctx, "sqlite:///var/lib/app/store.db")
//
// A program links only the drivers of the adapters that it imports.
//
// # Writing
//
// Every stored resource has an opaque version. A write carries the version that it was made from, or none to create; a write
// made from an older one fails with [ErrCASFailure], and the caller reads, decides and writes again. A uid, given by the
// caller, tells a resource from a later one of the same name.
//
// # Watching
//
// [Backend.WatchList] gives a snapshot, a mark, and then every change, per key in order and exactly once. What a watch costs
// depends little on how many there are: one opened backend holds one feed from its database for all of its watches.
//
// # Capabilities
//
// [Pager], [Resumer] and [Transactor] are optional: find them with [As]. All adapters of this module have the three. A [Watch]
// may be a [Bookmarker], which can prove that it has shown everything written so far.
//
// # History
//
// All adapters but dynamodb number their changes and keep the versions of a while. A [Historian] reads the store as it was at a
// revision, writes at a revision, and follows changes from one on, with what was stored before each.
package storage
