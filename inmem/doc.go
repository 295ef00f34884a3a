// Package inmem keeps a store in memory. It is the reference for what the contract of package storage means, the backend of
// choice for tests, and a fast store for programs that need no durability.
//
// Import it for its side effect and open "mem://" for a store of one's own, or "mem://name" for one that all of the process
// shares under that name and that lives as long as the process.
//
// # URL parameters
//
//	create         on or off: whether a named store that is not there yet is created (on)
//	max-size       the largest resource in bytes, up to 1 MiB (1048576)
//	history        the number of changes that are kept for watches that fall behind and for cursors (100000)
//	history-bytes  the bytes that these changes may take, about 640 for each beside its resource (67108864)
//	timeout        accepted as on every adapter; nothing here waits
//	outage         accepted as on every adapter; memory has no outages
//
// # Guarantees
//
// All reads are strong. A list, and all pages of a listing, show one moment. Events come in commit order across all keys.
// Writers, readers and lists hold one lock for a moment each; nobody holds it while messages are copied or anybody waits. What
// is stored is immutable: it is cloned on the way in and on the way out.
//
// [Backend.Snapshot] and [Backend.Restore] write a store to a stream and read it back. A restore ends all watches, because their
// history is gone, and versions given out afterwards never repeat those from before.
package inmem
