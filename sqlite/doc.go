// Package sqlite keeps resources in one SQLite file: the durable default for a single machine, with nothing to set up. Any
// number of processes may open the file at once, and a watch in one sees the writes of another within milliseconds.
//
//	import _ "github.com/ashlar-dev/storage/sqlite"
//
//	backend, err := storage.Open(ctx, "sqlite:///var/lib/app/store.db")
//
// # How it works
//
//	WriteCAS, DeleteCAS, Commit ─► queue ─► writer ─► one transaction ─► acknowledge, ring
//	                                        (one goroutine)  for all that wait
//	Read, List, OwnerReferences ─► a few reading connections, for the length of one statement each
//	WatchList, WatchFrom        ─► feed ◄── log table ◄── rung by writers, in this process and in others
//
// Every change is a row in the log table, numbered in the order of commits, in the same transaction as the change itself. The
// number, with a random tag, is the resource's version and the position of the change in history. From the horizon on, the store can be
// read as it was at each row: the rows of a resource form a chain (chain.go), and pruning leaves the newest one before the horizon of
// all that is stored (sweep.go).
//
// The database is in WAL mode with synchronous=FULL: a write that was acknowledged survives kill -9 and, as far as the disk
// keeps its promises, power loss. No read transaction stays open while a caller consumes rows: they are copied out.
//
// Beside the database file lie the -wal and -shm files of SQLite and a -lock file. Writers of different processes take turns
// by a lock on the latter, which is fairer and faster than SQLite's busy handler, and after each commit a writer touches it,
// which wakes the watches of all processes. SQLite's own locks still protect the data: the file may be opened by other
// programs too.
package sqlite
