// Package bboltstore stores resources in one bbolt file. It is the example of a backend that uses only public packages;
// docs/writing-a-backend.md explains it in the order of its development.
//
//	backend, err := storage.Open(ctx, "bbolt:/var/lib/app/store.db")
//
// # The file
//
// A store has four buckets. Keys of resources are their Bytes, so bbolt's order is the order of lists.
//
//	store      "format" → 1, "id" → 16 random bytes
//	resources  key → version, resource
//	children   owner's key, owner's uid, child's key → nothing
//	log        number, key → kind, number of the transaction's last change, version, resource
//
// A change and its row in the log are one write transaction. The log keeps the newest changes ([Options].History), and one more row
// before them: the point after which history begins.
//
// # Numbers and versions
//
// Each change has a number, and numbers increase with random gaps. A version is the number and 64 random bits. A version is therefore
// never used twice, even if an older copy replaces the file. A cursor that was taken after the copy was made has a number that the
// copy's log does not contain, so it fails with storage.ErrCompacted.
//
// # Limits
//
// bbolt allows one process per file. All handles of that process share it. A write is one transaction with one flush to the disk,
// and writes wait for each other. The file never shrinks.
package bboltstore
