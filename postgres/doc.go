// Package postgres stores resources in Postgres 15 or later. Import it for its side effect and open a store by URL:
//
//	import _ "github.com/ashlar-dev/storage/postgres"
//
//	backend, err := storage.Open(ctx, "postgres://user:password@host/database")
//
// or call New with a pool of your own.
//
// # How it works
//
// A store has two main tables: the resources, and a log of changes that the statement of a change also writes. Calls that arrive
// while a statement runs share the next statement, which decides each of them independently.
//
//	calls ──► batch ──► one statement: lock rows, compare, note the last number, draw numbers, write, log
//	                         │ commit
//	                         ├──► the own feed takes the changes, or polls for earlier ones
//	                         └──► NOTIFY, outside of the transaction ──► other processes poll
//
//	feed: the next changes, up to the lowest number noted ──► events, in one order
//
// # Files
//
// Each file uses only files below it:
//
//   - postgres.go: Backend and its parts; url.go: parameters of a URL, pools; schema.go: creation of a store.
//   - feed.go: changes for the watches; retention.go: deletion of old changes; mover.go: notes and fence of a migration.
//   - read.go, list.go, children.go: reads, lists and owner references of the present; history.go, past.go: reads at a revision.
//   - write.go: batches and transactions; send.go: statements, and the outcome of lost answers; mutation.go.
//   - frontier.go: how far the history is final; log.go: positions and pages of changes.
//   - notify.go: LISTEN and NOTIFY, and changes that need not be read back; burst.go: the pace of polls under load; conn.go: connections, sessions, retries.
//   - replica.go: eventual reads; watchdog.go: statements on silent connections; errors.go: classes of errors.
//   - statements.go and the folder sql: all SQL; options.go.
//
// The README lists the parameters of the URL, the requirements on the server, and the caveats.
package postgres
