// Package migrate moves a store's data from one backend to another, whichever they are: from the file on a laptop to Postgres,
// from etcd to DynamoDB and back, with the programs that use it running. (Package migrations is something else: the SQL schema.)
//
//	from, err := storage.Open(ctx, "sqlite:///var/lib/app/store.db")
//	to, err := storage.Open(ctx, "postgres://db/app")
//	result, err := migrate.Run(ctx, from, to, &migrate.Options{
//		From: "the old file", To: "postgres://db/app",
//		Live: true, CutoverLag: time.Second,
//	})
//
// # What is moved
//
// Every resource with its id, uid, owner, generation, metadata, statuses and payload, byte for byte, also what no program here
// knows. Versions are the target's own: a program that remembers versions, or cursors, of the old store has to read again.
//
// # The phases of a live migration
//
//	           copy                  follow                 cutover                      complete
//	source ─── list ──────────────── changes ─────────────┬ closed for writing ───────── closed: names the target
//	             │ pages               │ in order per key │   │ the rest, then a comparison
//	target ───── written in parallel ─ applied ───────────┴── applied ── equal ───────── in use
//	journal      phase ─────────────── cursor ─────────────── phase ──────────────────── kept as a record
//
// Copying walks through both sides in key order and writes what the target lacks. Its reading has a cursor; following applies
// the changes since then. A change is applied by looking at what the target holds, so applying it again is harmless, and several
// changes of one key may come as one: watches on the target see the states, not each version. What changes while it is copied may
// be seen there in its newer state first, and then once more in its older one.
//
// SQLite and Postgres are read in steps, each for itself, as the bytes that they store, so nothing is held open or set aside for
// long; the others page through a listing. Postgres is filled by COPY, some megabytes in a transaction, resources and the log of
// changes alike: a watch on it sees what comes. Memory is for a few such steps, some 50 MB, however large the store is.
//
// At the cutover the source is fenced: from the moment Run goes on, no write to it succeeds any more, through any process that
// uses this module. Writers get storage.ErrFenced, which names the target. Then the last changes are applied: a bookmark of the
// source's watch, asked for after the fence, proves that the last one has come (storage.Bookmarker). Then both sides are walked
// through until a walk finds nothing to do: that walk is the proof that the target holds what the source holds. Only then the
// migration is complete. How long the source is closed before that is Result.Fenced: about as long as it takes to list both sides
// once.
//
// A cutover that fails opens the source again; one that is stopped, by its context or with its process, leaves it closed, and
// the journal says so. Result.Next and Result.Closed say what leads on.
//
// # What is proven, and by what
//
//	               the lag, and the last change         the target is complete
//	Empty, Mirror  bookmarks; else comparing both sides comparing both sides, which have to be equal
//	Merge,         bookmarks; else not offered live     bookmarks for what the source has deleted, and a comparison of
//	Overwrite                                           what it has
//
// Memory, SQLite, Postgres and etcd give bookmarks. Where a watch is no Bookmarker, silence proves nothing, and equality is the only proof
// that nothing was missed; a target that keeps other contents is not to be equal, so such a migration is refused with
// ErrUnsupported before anything is written. Without bookmarks Options.CutoverLag is proven by comparisons, so a lag that is
// shorter than one takes cannot be.
//
// # Going on
//
// The target keeps a journal, hidden from lists and watches: the phase and the cursor up to which everything was applied. After
// any end (an error, a cancelled context, kill -9) the same call goes on. A copy that was interrupted lists again, which costs
// little where the resources are there already. Two processes at work on one migration notice each other by the journal.
//
// If the source has forgotten its history in the meantime, both sides are compared anew. Where the target also holds other
// things that cannot be done exactly, since nobody knows what to delete: then Run says so.
//
// Who was frozen, and wakes up after another has gone on, or after an abort, must change nothing any more. That takes more than a
// look at the journal, since it may be frozen right after it, and a request may be held up on the way:
//
//	                     writes to the target                    closing and opening the source
//	memory, SQLite,      depend on a note that whoever takes     happen only at the epoch of the fence that was read
//	etcd, Postgres       over writes first, compared in the      before the journal, and every change, also by whoever
//	                     write's own transaction                 takes over or aborts, makes another epoch
//	others               happen only while the last sign of      are followed by another look at the journal, and undone
//	                     life is less than two seconds old, by   if the migration is somebody else's by then
//	                     the tool's own clocks; others take
//	                     over after three seconds without one
//
// The first needs no clock, and holds for requests that arrive at any time. The second does not hold back a request that left in
// time and is carried out more than a second later, nor undo a fence of a process that is killed between the fence and the look:
// then the source is closed, and Abort, which may be called again and again, opens it. (An etcd cluster that is restored from a
// backup counts its revisions anew: see the package's README. Begin a migration again after that.)
//
// # Into a target that is not empty
//
// Options.Into says what becomes of what is there: see [Empty], [Merge], [Overwrite] and [Mirror]. Nothing is ever overwritten
// or deleted without being told to, except in a target that was empty when the migration began, which is taken to hold nothing
// but the migration's work: let no program write there before it is complete.
//
// # What the fence costs
//
//	memory      a nil check under the lock that a write takes anyway
//	SQLite      a column in a row that each transaction reads anyway
//	Postgres    nothing: a trigger is created by the fence, which waits for the writers under way
//	etcd        one more comparison in each transaction; a guarded write has another
//	DynamoDB    a strong read of one item every 15 seconds by each handle that writes; closing takes 16 minutes,
//	            during which the store is open and writes cost twice as much
//
// # Going back
//
// Before the cutover, or in the middle of it: [Abort]. After it, to keep what was written since: [Unfence] the old store and migrate the other way with
// [Mirror]. docs/moving-a-store.md tells it as a story.
//
// # Without the rest
//
// Backends may lack the journal and the fence (driver.Mover), pages or cursors. What can be listed and written can be copied with
// Options.Live unset. [Verify], [Export] and [Import] work with every backend.
package migrate
