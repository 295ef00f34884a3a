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
//	calls ──► batch ──► one statement: lock rows, compare, note the last number, draw numbers, write, log
//	                         │ commit
//	                         ├──► the own feed takes the changes, or looks for what came before them
//	                         └──► NOTIFY, from outside the transaction ──► other processes look
//
//	feed: which changes come next, up to the lowest number noted? ──► events, in one order
//
// Files: sql.go has all statements, and the function apply stands in migrations/005_revisions.sql; op.go the operations, write.go
// their batches, commit.go transactions; attempt.go what happens when an answer does not come, session.go and watchdog.go what is
// known of connections and of statements that stay silent; frontier.go says up to where the history is final, source.go reads it,
// inbox.go has what it need not read, position.go the places in it; retention.go deletes old changes.
//
// The README lists the parameters of the URL, what the server needs, and the caveats.
package postgres
