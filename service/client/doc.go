// Package client is the Go client of the resource service: a [storage.Backend] over a connection to a server, such as ashlar serve. Package
// typed, package cache and the command line work on it as on a store.
//
//	backend, err := client.Dial(client.Options{Address: "db.example:8502", Token: token})
//	orders := typed.NewJSON[Order](backend, typed.NewType("shop", "v1", "Order"))
//
// A program that knows another group version than the stored one names it in Options.Types. New returns the backend of a server in the same process.
//
// Watches resume after an outage of the server, or at another server at the same address, without a gap or a repetition, for up to five
// minutes. Reads that find no server are repeated. So is every call that the server refuses because of too many calls, until the context
// ends. A write whose answer was lost fails with [storage.ErrInconsistent]: it may have been applied.
//
// A service differs from a store, and the backend shows these differences. A service chooses uids and generations, keeps owners as they
// are, accepts no status with a write, marks resources with finalizers for deletion, and omits resources that the caller may not see. A
// creation that is repeated after a lost answer is not recognized, because the service has chosen another uid: typed.Client.Create fails with
// typed.ErrExists, even if the resource is its own. A service has no transactions, so package typed/tables needs a store, and reports no
// damage. Strong reads of a cache go to the server. Its history is read by filters and keys, not by ranges, and it cannot be changed.
package client
