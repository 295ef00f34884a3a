// Package inmem stores resources in memory. It is the reference implementation of the contract of package storage, the
// usual backend for tests, and a fast store for programs that need no durability.
//
// Import it for its side effect and open "mem://" for a private store, or "mem://name" for a store that the whole
// process shares by name. A named store lives as long as the process.
//
// # URL parameters
//
//	create         on or off: whether a missing named store is created (on)
//	max-size       the largest resource in bytes, up to 1 MiB (1048576)
//	history        the number of changes kept for slow watches, cursors and continue tokens (100000)
//	history-bytes  the size of these changes in bytes, counting about 640 for each beside its resource (67108864)
//	timeout        accepted as on every adapter; no call waits for a server
//	log            debug, info, warn or error: the level from which the store logs to standard error (no log)
//	outage         accepted as on every adapter; memory has no outages
//
// # Guarantees
//
// All reads are strong. A list, all pages of a listing, and the snapshot of a watch each show the store at one moment.
// The pages of a listing after the first, and the snapshots of watches, are read from history, so a caller that stops
// reading holds one page, at most 4 MiB. If more is written meanwhile than history holds, its next page is
// storage.ErrCompacted. Events come in commit order across all keys. Writers, readers and lists share one lock, which is
// never held during a copy of a message or a wait. If history is full of changes that the feed of a handle has not taken
// yet, writers wait for it until their context ends. Stored resources are immutable: writes and reads clone them.
//
// [Backend.Snapshot] and [Backend.Restore] write a store to a stream and read it back. A restore discards the history
// and so ends all watches. Versions assigned after a restore never repeat earlier ones.
package inmem
