// Package etcdserver serves a store by etcd's API, so that etcd's clients, Kubernetes' API server among them, run on any backend that is a
// [history.Historian] and a [storage.Transactor]: memory, SQLite, Postgres and etcd itself.
//
//	s, err := etcdserver.New(backend, nil)
//	...
//	s.Register(grpcServer)
//
// A revision of etcd's API is a revision of the store. There is one clock: what is read, what a write is answered with and what a watch has
// come to are positions in the store's own history, so progress never overtakes an event, whichever server of a store is asked.
//
// # What is served
//
// KV, Watch and Lease as a whole; of Maintenance the Status, and Alarm, which never knows of one; of Auth its status. Errors have etcd's
// texts. The rest is Unimplemented, with a reason: users and roles, members, and what concerns the files of etcd's members.
//
// # What differs from etcd
//
//   - Revisions also count what is not a key: leases, their renewals, and other resources in the same store.
//   - The changes of one transaction may have several revisions that follow each other, of which the answer has the last. A watch gets them
//     together, in one answer, and in no particular order.
//   - So do the deletions of a lease that ends, and of more keys than a transaction of the store takes.
//   - Keys are UTF-8 without NUL, of at most 762 bytes, and no character lies across byte 254 or 508. Others are InvalidArgument; as ends
//     of ranges all bytes are fine.
//   - A transaction that is to change something because a comparison of a range holds, or because the range is empty, is Unimplemented.
//   - Keys that somebody creates, at the same moment, in a range that a transaction deletes are deleted too, by changes that follow the
//     others. If the range was empty then, the answer has that revision, and otherwise the transaction's: a watch from there on sees
//     the deletions and whatever is left.
//   - A put of a key in one transaction within a transaction, and the deletion of that key in a later one, are refused as a duplicate key, where
//     etcd does one after the other.
//   - A transaction has at most 4,096 comparisons and operations, those of transactions within it included.
//   - A transaction changes no more keys than one of the store: on etcd fewer than the 128 that are the most elsewhere.
//   - A value has the size of a resource, 1 MiB less what its key takes, where etcd's requests have 1.5 MiB.
//   - A read of keys only does not say their leases.
//   - Serializable reads are linearizable.
//   - The size of the database is not known, and Status says that it is 1 byte.
//   - A list of leases is in the order of their names, not in that of their ends.
//   - What a watch catches up with comes in an answer for each commit, whose header has the revision of that commit.
//   - A lease counts from the last renewal that a server has seen, never from less. If all servers start anew, it counts anew.
//   - A store forgets its history by itself as well, as its retention says, not only when it is compacted.
//   - A watch that starts at the revision which was compacted, and not after it, is compacted.
package etcdserver
