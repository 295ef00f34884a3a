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
//	resources  key → version, resource
//	children   owner's key, owner's uid, child's key → nothing
//	log        number, key → kind, number of the transaction's last change, version, resource
//
// A change and its row in the log are one write transaction. The log keeps the newest changes ([Options].History), and before them
// one row more: the place after which history begins.
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
