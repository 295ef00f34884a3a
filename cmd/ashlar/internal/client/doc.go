// Package client makes a storage backend of a connection to a resource service, as far as a service can be one. It is what the command line
// works with when it is given a server in the place of a store.
//
// What a service does in another way than a store shows: it chooses uids and generations, keeps owners as they are, takes no status with a
// write, marks for deletion what has finalizers, and leaves out what the caller may not see. There are no transactions, and
// nothing of damage; the past is read by filters and keys, not by spans, and not changed.
package client
