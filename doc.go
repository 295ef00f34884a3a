// Package storage defines one storage contract for control planes. Adapters implement it on several databases.
//
// A control plane (a service mesh, a platform, a scheduler) stores typed resources. It needs compare-and-swap writes, lists,
// ordered watches, and references from resources to their owners. [Backend] is the contract for such a store. The adapters
// below implement it with the native features of their databases, and package conformance tests them.
//
//	inmem     mem://                      in the process; the reference implementation
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
// Every stored resource has an opaque version. A write carries the version that the caller read, or none to create. If the
// stored version differs, the write fails with [ErrCASFailure]; the caller reads, decides and writes again. A uid, chosen by the
// caller, distinguishes a resource from a later one of the same name.
//
// # Watching
//
// [Backend.WatchList] returns a snapshot, an end-of-snapshot event, and then every change, per key in order and exactly once. An
// opened backend reads one feed from its database, which all of its watches share.
//
// # Capabilities
//
// [Pager], [Resumer] and [Transactor] are optional: find them with [As]. All adapters of this module implement them. A [Watch]
// may be a [Bookmarker], which can prove that it has returned everything written so far.
//
// # History
//
// All adapters except dynamodb number their changes and retain old versions for a limited time: see package history.
package storage
