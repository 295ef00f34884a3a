// Package moved lets a program follow its store to another database while package migrate moves it.
//
//	first, err := storage.Open(ctx, "sqlite:///var/lib/app/store.db")
//	store := moved.New(first, func(ctx context.Context, to *storage.MovedError) (storage.Backend, error) {
//		return storage.Open(ctx, urls[to.Target]) // to.Target has no credentials, so the program knows the URL
//	})
//
// # What moves
//
// Writes that the old store refuses wait until the new store is open, and go there. So do strong reads, lists and pages of a store that has
// moved. A watch returns every change of the old store, and then the changes of the new one after the copied state: nothing is missing, and
// nothing is repeated. From then on, all calls go to the new store. It may move again.
//
// The watches of caches, of controllers and of the streams of a resource service end with storage.ErrCompacted instead. Their readers keep copies,
// and no watch returns the new version of a resource that has not changed since, so they list again.
//
// Versions belong to a store: after a move, a write with a version of the old store fails with storage.ErrCASFailure, as after any other
// change. Read again. Continue tokens of the old store are storage.ErrCompacted. Cursors of the old store work as long as the Backend that has
// seen the move is open.
//
// # Limits
//
// A watch of a DynamoDB table follows after a proof that every change was published. Without it (AWS has split a type, and no tick reaches a
// part of it) the watch ends with a storage.MovedError that has no cursor: open a new watch, which begins with a snapshot of the new store. If
// the target is such a table, the watch may repeat changes that the tool has copied. The watches offer no bookmarks, because the next store may
// have none.
package moved
