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
// uses this module. Writers get storage.ErrFenced, which names the target. Then the last changes are applied, and both sides are
// walked through until a walk finds nothing to do: that walk is the proof that the target holds what the source holds. Only
// then the migration is complete. How long the source is closed before that is Result.Fenced: about as long as it takes to
// list both sides once.
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
//	etcd        one more comparison in each transaction
//	DynamoDB    a strong read of one item every few seconds by each handle that writes; closing waits until the
//	            last such permission has run out
//
// # Going back
//
// Before the cutover: [Abort]. After it, to keep what was written since: [Unfence] the old store and migrate the other way with
// [Mirror]. docs/moving-a-store.md tells it as a story.
//
// # Without the rest
//
// Adapters that are not part of this module may lack the journal, the fence, pages or cursors. What can be listed and written
// can be copied with Options.Live unset. [Verify], [Export] and
// [Import] work with every backend.
package migrate
