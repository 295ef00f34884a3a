// Package client implements a storage backend over a connection to a resource service, as far as a service allows it. The command line uses
// it if --server names a server instead of a store.
//
// A service differs from a store, and the backend shows these differences. A service chooses uids and generations, keeps owners as they
// are, accepts no status with a write, marks resources with finalizers for deletion, and omits resources that the caller may not see. It
// has no transactions and reports no damage. Its history is read by filters and keys, not by ranges, and it cannot be changed.
package client
