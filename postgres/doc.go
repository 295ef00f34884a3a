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
// Files, and the parts of a handle, of which none knows the handle:
//
//   - read.go, list.go, owner.go, bulk.go: the reader; replica.go says when a replica may answer for the primary.
//   - write.go, commit.go: the writer, its batches and transactions; mutation.go what they are of; send.go one statement; settle.go
//     what happens when an answer does not come. The function apply stands in migrations/008_numbered.sql.
//   - source.go, run.go: the changes for the feed; history.go reads them, frontier.go says up to where they are final, ahead.go what a
//     snapshot shows beyond; position.go has the places between them, inbox.go what need not be read.
//   - notify.go: the notifier; retention.go deletes old changes; mover.go, fence.go: the seams of a migration.
//   - database.go: connections, and the one retry; session.go, watchdog.go: what is known of connections, and of statements that stay
//     silent; errors.go: what an error says about its statement.
//   - schema.go, sql.go: the stored form, and all statements.
//
// The README lists the parameters of the URL, what the server needs, and the caveats.
package postgres
