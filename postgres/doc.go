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
// # Files
//
// From the top to the bottom of the order in which they use each other; no part of a handle knows the handle.
//
//   - postgres.go: Backend and its parts; url.go: parameters of a URL, pools; schema.go: creating a store.
//   - feed.go: changes for the watches; retention.go: deletion of old changes; mover.go: notes, fence and bulk reads of a migration.
//   - read.go, list.go, past.go, history.go: reads of the present and the past, and the replica.
//   - write.go: batches and transactions; send.go: one statement, and the outcome of one whose answer was lost; mutation.go.
//   - frontier.go: the number up to which the history is final; log.go: positions and pages of changes.
//   - notify.go: LISTEN and NOTIFY, and changes that need not be read back; watchdog.go: statements without a sign of life.
//   - conn.go: connections, sessions, retries; errors.go: classes of errors; statements.go and sql/: all SQL; options.go.
//
// The README lists the parameters of the URL, what the server needs, and the caveats.
package postgres
