// Package etcdserver serves a store through etcd's API, so that etcd's clients, including Kubernetes' API server, run on any backend that
// is a [history.Historian] and a [storage.Transactor]: memory, SQLite, Postgres and etcd itself.
//
//	s, err := etcdserver.New(backend, nil)
//	...
//	s.Register(grpcServer)
//
// A revision of etcd's API is a revision of the store. There is one clock: the revisions of reads, of write responses and of watch progress
// are all positions in the store's own history. So progress never overtakes an event, whichever server of a store a client asks.
//
// # Supported services
//
// KV, Watch and Lease are complete. Maintenance supports Status and Alarm, which never reports an alarm. Auth supports its status. Errors
// have etcd's texts. All other calls return Unimplemented with a reason: users and roles, members, and operations on the files of etcd's
// members.
//
// # Differences from etcd
//
//   - Revisions also count changes other than keys: leases, their renewals, and other resources in the same store.
//   - A watch gets the changes of one transaction together, in one response, in no particular order.
//   - The deletions of a lease that ends, and of more keys than a transaction of the store allows, may have several revisions, and the
//     response has the last one.
//   - Keys are UTF-8 without NUL, at most 762 bytes long, and no character crosses byte 254 or 508. Other keys are InvalidArgument. Ends of
//     ranges may contain any bytes.
//   - A transaction is Unimplemented if it changes something because a comparison of a range holds, or because the range is empty.
//   - A transaction that deletes a range also deletes keys that are created concurrently in it, by later changes. If the range was empty
//     then, the response has the revision of these changes, otherwise the revision of the transaction: a watch from there sees the
//     deletions and all remaining keys.
//   - If a transaction contains transactions, a put of a key in one of them and its deletion in a later one are rejected as a duplicate
//     key. etcd executes both in order.
//   - A transaction has at most 4,096 comparisons and operations, including nested transactions.
//   - A transaction changes at most as many keys as a transaction of the store may: fewer than 128 on etcd, 128 elsewhere.
//   - A value is limited to the size of a resource, 1 MiB minus the size of its key. etcd limits requests to 1.5 MiB.
//   - A read of keys only does not return their leases.
//   - Serializable reads are linearizable.
//   - The size of the database is unknown, and Status reports 1 byte.
//   - A list of leases is sorted by name, not by end.
//   - A watch that catches up gets one response for each commit, whose header has the revision of that commit.
//   - A lease ends no earlier than its time to live after the last renewal that a server has seen. If all servers restart, that time
//     starts again.
//   - A store also forgets its history by itself, according to its retention, not only when it is compacted.
//   - A watch that starts at the compacted revision itself fails as compacted. It must start after it.
package etcdserver
