// Package migrate moves a store's data from any backend to any other, for example from a file on a laptop to Postgres, while
// programs use it. (Package migrations is the SQL schema of Postgres.)
//
//	from, err := storage.Open(ctx, "sqlite:///var/lib/app/store.db")
//	to, err := storage.Open(ctx, "postgres://db/app")
//	result, err := migrate.Run(ctx, from, to, &migrate.Options{
//		From: "the old file", To: "postgres://db/app",
//		Live: true, CutoverLag: time.Second,
//	})
//
// # Contents
//
// A migration copies every resource with its id, uid, owner, generation, metadata, statuses and payload, byte for byte, including
// unknown fields. Versions belong to the target: a program that stores versions, or cursors, of the old store must read again.
//
// # The phases of a live migration
//
//	           copy                  follow                 cutover                      complete
//	source ─── list ──────────────── changes ─────────────┬ closed for writing ───────── closed: names the target
//	             │ pages               │ in order per key │   │ the rest, then a comparison
//	target ───── written in parallel ─ applied ───────────┴── applied ── equal ───────── open, in use
//	             closed for other writers ───────────────────────────────┘
//	journal      phase ─────────────── cursor ─────────────── phase ──────────────────── kept as a record
//
// The copy compares both sides in key order and writes the resources that the target lacks. Its listing has a cursor; the following
// phase applies the changes since then. A change is applied after a comparison with the target, so applying it again is harmless,
// and several changes of one key may be applied as one: watches on the target see the states, not each version. A resource that
// changes during the copy may appear on the target in its newer state first, and then again in its older one.
//
// SQLite and Postgres are read in independent steps, as stored bytes, so no transaction stays open for long; the others are read by
// a paged listing. Postgres is filled by COPY, some megabytes in a transaction, including the change log: a watch on it returns the
// copied resources. Memory holds only a few such steps, some 50 MB, whatever the size of the store.
//
// At the cutover the source is fenced: from then on every write to it fails, through any process that uses this module. Writers get
// storage.ErrFenced, which names the target. Then the last changes are applied: a bookmark of the source's watch, requested after
// the fence, proves that the last one has arrived (storage.Bookmarker). Then both sides are compared until a comparison finds no
// difference: this comparison proves that the target equals the source. Only then the migration is complete. Result.FenceTime is
// how long the source is closed before that: about as long as listing both sides once.
//
// Then the source's fence records the move, with a cursor of the target after the copied state: writes, strong reads and new watches of the source
// get a storage.MovedError, and open watches end with it after the last change. At last the target is opened.
// Package moved lets a program follow by itself.
//
// A cutover that fails opens the source again. One that is stopped, by its context or with its process, leaves it closed, and the
// journal records that. Result.Next and Result.SourceClosed describe the next step.
//
// # Proofs
//
//	               the lag, and the last change         the target is complete
//	Empty, Mirror  bookmarks; else comparing both sides comparing both sides, which must be equal
//	Merge,         bookmarks; else not offered live     bookmarks for deletions in the source, and a comparison of
//	Overwrite                                           its contents
//
// Memory, SQLite, Postgres and etcd have bookmarks. If a watch is no Bookmarker, the absence of events proves nothing, and only
// equality proves that nothing was missed. A target with other contents is not supposed to be equal, so such a migration is refused
// with ErrUnsupported before anything is written. Without bookmarks Options.CutoverLag is proven by comparisons, so a lag shorter
// than a comparison cannot be proven.
//
// # Continuation
//
// The target stores a journal, hidden from lists and watches: the phase, and the cursor of the last applied change. After any end
// (an error, a cancelled context, kill -9) the same call continues. An interrupted copy lists again, which costs little if the
// resources are already there. Two processes that work on the same migration detect each other by the journal.
//
// If the source has deleted the necessary history in the meantime, both sides are compared again. If the target also has other
// contents, that is impossible, because the resources to delete are unknown; Run then returns an error that says so.
//
// A suspended process that resumes after a takeover, or after an abort, must not change anything. Reading
// the journal is not sufficient, because the process may be suspended right after the read, and a request may be delayed:
//
//	                     writes to the target                    closing and opening the source
//	all adapters of      are conditional on a note that the      are conditional on the epoch of the fence that was
//	this module          new process writes first, compared in   read before the journal; every change, also by a
//	                     the write's own transaction             new process or an abort, makes a new epoch
//	others               need a heartbeat less than two seconds  are followed by another read of the journal, and
//	                     old, by the tool's own clocks; other    undone if the migration belongs to another process
//	                     processes take over after three         by then
//	                     seconds without one
//
// The first kind needs no clock, and holds for requests that arrive at any time. The second kind does not stop a request that
// leaves in time and is applied more than a second later, and does not undo a fence of a process that is killed between the fence
// and the read: then the source is closed, and Abort, which may be called repeatedly, opens it. (An etcd cluster that is restored
// from a backup counts its revisions again: see the README of package etcd. Start a migration again after that.)
//
// # Targets with contents
//
// Options.Into decides about existing resources in the target: see [Empty], [Merge], [Overwrite] and [Mirror]. Resources are
// overwritten or deleted only on request. The exception is a target that was empty when the migration started: all its contents are
// the migration's.
//
// The target is closed for all writers but the tool, from before the tool's first write until the migration is complete or aborted. A
// program that writes too early gets storage.ErrFenced, which names the source, and changes nothing. [TargetContext] saves the 16 minutes
// that closing an existing DynamoDB table takes. A target that is no driver.GuardedMover stays open: no other program may write to it.
//
// # Costs of the fence
//
//	memory      a nil check under the lock that a write takes anyway
//	SQLite      a column in a row that each transaction reads anyway
//	Postgres    nothing: a trigger is created by the fence, which waits for the writers in flight
//	etcd        one more comparison in each transaction; a guarded write has another
//	DynamoDB    a strong read of one item every 15 seconds by each handle that writes; closing takes 16 minutes,
//	            during which the store is open and writes cost twice as much; a guarded write is a transaction with
//	            one more item
//
// # Return
//
// Before the cutover, or in the middle of it: [Abort]. After it, to keep the writes since then: [Unfence] the old store and migrate
// in the other direction with [Mirror]. docs/moving-a-store.md is a guide.
//
// # Other backends
//
// Backends may lack the journal and the fence (driver.Mover), pages or cursors. Any backend that can be listed and written can be
// copied with Options.Live unset. [Verify], [Export] and [Import] work with every backend.
package migrate
