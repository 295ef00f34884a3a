// Package sqlite stores resources in one SQLite file. It is the durable default for a single machine and needs no
// setup. Any number of processes may open the file at once. A watch in one process sees the writes of another within
// milliseconds.
//
//	import _ "github.com/ashlar-dev/storage/sqlite"
//
//	backend, err := storage.Open(ctx, "sqlite:///var/lib/app/store.db")
//
// # How it works
//
//	WriteCAS, DeleteCAS, Commit ─► queue ─► writer ─► one transaction ─► notify, acknowledge
//	                                        (one goroutine)  for all waiting requests
//	Read, List, OwnerReferences ─► a few reading connections, for the length of one statement each
//	WatchList, WatchFrom        ─► feed ◄── log table ◄── notified by writers, in this process and in others
//
// Every change is a row in the log table, in the same transaction as the change itself. Rows are numbered in the order
// of commits. The number and a random tag form the resource's version and the position of the change in history. The
// store can be read as it was at each row from the horizon on: the rows of a resource form a chain (chain.go). Pruning
// keeps, for each stored resource, the newest row before the horizon (retention.go).
//
// The database is in WAL mode with synchronous=FULL. An acknowledged write survives kill -9 and, if the disk keeps its
// promises, power loss. Rows are copied out of read transactions, so none stays open while a caller consumes rows.
//
// SQLite keeps a -wal and a -shm file beside the database file, and the package a -lock file. Writers of different
// processes take turns by a lock on the -lock file, which is fairer and faster than SQLite's busy handler. After each
// commit a writer writes to it, which wakes the watches of all processes. SQLite's own locks still protect the data, so
// other programs may open the file too.
//
// The SQL statements are in folder sql, one in each file with the reason for it.
package sqlite
