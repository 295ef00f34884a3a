// Package postgres keeps resources in Postgres 15 or later. Import it for its side effect and open a store by URL:
//
//	import _ "github.com/ashlar-dev/storage/postgres"
//
//	backend, err := storage.Open(ctx, "postgres://user:password@host/database")
//
// or give New a pool of your own.
//
// # How it works
//
// Two tables: the resources, and a log of changes that is written in the same statement as the change. Calls that arrive while
// a statement is under way leave together in the next one, which decides each of them by itself.
//
//	calls ──► batch ──► one statement: lock rows in key order, compare, write, log
//	                         │ commit
//	                         ├──► the own feed takes the changes, or looks for what came before them
//	                         └──► NOTIFY, from outside the transaction ──► other processes look
//
//	feed: what did the last poll's snapshot not see? ──► events, in the order of commits for each key
//
// Files: sql.go has all statements; source.go the feed's reading, inbox.go what it need not read, and snapshot.go, position.go its
// arithmetic; op.go the operations, write.go their batches and lost.go what happens when an answer does not come; commit.go
// transactions; retention.go what deletes old changes.
//
// The README lists the parameters of the URL, what the server needs, and the caveats.
package postgres

import "github.com/ashlar-dev/storage"

var (
	_ storage.Backend    = (*Backend)(nil)
	_ storage.Pager      = (*Backend)(nil)
	_ storage.Resumer    = (*Backend)(nil)
	_ storage.Transactor = (*Backend)(nil)
)
