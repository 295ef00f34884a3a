// Package etcd keeps resources in etcd.
//
//	import _ "github.com/ashlar-dev/storage/etcd"
//
//	backend, err := storage.Open(ctx, "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/control-plane")
//
// The path names the key prefix of the store; any number of stores live side by side in one cluster. etcds:// speaks TLS.
// README.md has the table of parameters, what the servers must be set to, and what to do after a restore.
//
// # How it works
//
// A resource is one key, and so is the edge from its owner to it; both change in one transaction. The version is made of
// the key's mod revision, so that compare-and-swap is etcd's own comparison. Writes that arrive while others are under way
// leave together, as one transaction of nested transactions, each with its own comparison and its own outcome; strong
// reads leave together as one transaction of gets.
//
//	<prefix>/ 0 r <group> 0 <kind> 0 <partition> 0 <namespace> 0 <name>     a resource
//	<prefix>/ 0 o <hash of the owner's key and uid> <the child's key>        an edge from an owner
//	<prefix>/ 0 m store                                                     the store's id and schema version
//	<prefix>/ 0 m fence <slot>                                              see below
//
// # History
//
// Revisions are etcd's own, and so is what is kept of them: the history of the cluster since its last compaction. Compact of the
// storage.Historian is that compaction. It concerns the whole cluster, and takes the history of all other stores and programs in it.
//
// # Lost answers
//
// Each write carries a random token in its value, so that the key, or its history, reports whether a write whose answer was
// lost was applied. Looking is not enough while the write may still be under way, so every transaction also compares the
// mod revision of a fence key: to settle the fate of a write the backend first moves the fence, after which the write has
// been applied or never will be, and then looks.
//
//	sent ── answer ──────────────────────────────► applied, or the table's error
//	  └─── no answer ── move fence ── read key ──► my token: applied
//	                                    ├────────► still the base: not applied; send again
//	                                    └────────► something else: look for my token in the key's history
package etcd
