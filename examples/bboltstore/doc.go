// Package bboltstore keeps resources in one bbolt file. It is the example of a backend written from the public packages alone;
// docs/writing-a-backend.md walks through it in the order in which one would write it.
//
//	backend, err := storage.Open(ctx, "bbolt:/var/lib/app/store.db")
//
// # The file
//
// Four buckets hold a store. Keys of resources are their Bytes, so bbolt's order is the order of lists.
//
//	store      "format" → 1, "id" → 16 random bytes
//	resources  key → version, uid, child row, resource
//	children   owner's key, owner's uid, child's key → child's uid and group version
//	log        number → kind, commit, key, version, resource
//
// A change and its row in the log are one write transaction. The log keeps the last changes ([Options].History); its first row is
// never a change that somebody may still ask for, but the place after which one can ask.
//
// # Numbers and versions
//
// Each change has a number, and numbers rise with random gaps. A version is the number and 64 random bits. So a version never
// comes back, also where a copy of the file from yesterday is put in place of today's; and a cursor from after that copy was made
// names a number that its log does not have, which is storage.ErrCompacted.
//
// # What to know before using it
//
// bbolt allows one process per file. The handles of that process share it, however many are opened. A write is one transaction
// with one flush to the disk, and writes wait for each other. The file never shrinks.
package bboltstore
