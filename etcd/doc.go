// Package etcd stores resources in etcd.
//
//	import _ "github.com/ashlar-dev/storage/etcd"
//
//	backend, err := storage.Open(ctx, "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/control-plane")
//
// The path is the key prefix of the store. A cluster may contain any number of stores. etcds:// uses TLS.
// README.md lists the parameters, the required settings of the servers, and the steps after a restore.
//
// # How it works
//
// A resource is one key. Its owner entry is a second key. Both change in one transaction. The version is made of the key's mod
// revision, so compare-and-swap is etcd's own comparison. Writes that arrive while others are in flight are sent together, as one
// transaction of nested transactions, each with its own comparison and its own outcome. Strong reads are sent together as one
// transaction of gets.
//
//	<prefix>/ 0 r <group> 0 <kind> 0 <partition> 0 <namespace> 0 <name>     a resource
//	<prefix>/ 0 o <hash of the owner's key and uid> <the child's key>        an owner entry
//	<prefix>/ 0 m store                                                     the store's id and schema version
//	<prefix>/ 0 m fence <slot>                                              a revocation, see below
//
// # History
//
// Revisions are etcd's own. They can be read back to the last compaction of the cluster. Compact of the history.Historian compacts
// the whole cluster, including the history of all other stores and programs.
//
// # Lost answers
//
// Each write contains a random token in its value, so the key or its history shows whether a write with a lost answer was
// applied. The key alone is not conclusive while the write may still be in flight. Every transaction therefore also compares the mod
// revision of a revocation key, which is stored under the name fence. To determine the outcome of a write, the backend first advances
// the revocation: after that the write has been applied or never will be. Then the backend reads the key.
//
//	sent ── answer ──────────────────────────────► applied, or the error of the decision table
//	  └─── no answer ── advance ── read key ─────► my token: applied
//	                                    ├────────► still the base: not applied; send again
//	                                    └────────► another value: search the key's history for my token
package etcd
