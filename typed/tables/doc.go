// Package tables is what control planes are written against: tables of objects in memory, with indexes, transactions and watches, over any
// [storage.Backend] that is a [storage.Transactor]. Any number of processes share the database.
//
// # Tables
//
// A [Table] is the resources of one type with their payloads decoded; an [Index] finds them by what a function takes from them. Both are
// variables of the program, and no code is generated:
//
//	var ByNode = store.Index[*pb.Task, string]{Name: "node", Values: func(t *typed.Object[*pb.Task]) []string {
//		return []string{t.Data.Node}
//	}}
//	var Tasks = store.NewTable[*pb.Task](taskType, ByNode)
//
//	s, err := store.Open(ctx, backend, Tasks, Nodes)
//
// # Reading
//
// [Store.View] calls a function with the store at one moment, out of memory. It sees all that was written through the same Store; with
// [Linearizable], all that was acknowledged to anybody.
//
//	err := s.View(ctx, func(v *store.View) error {
//		idle, err := Tasks.List(v, ByNode.Is(""), store.NamePrefix("web-"))
//		…
//	})
//
// Objects are shared between all readers and are not copied: they must not be changed. Tests that run under the race detector find out who
// does.
//
// # Writing
//
// [Store.Update] calls a function with a transaction, and commits what it has done if nothing that it has read was changed meanwhile, by
// whomever; else it calls the function again.
//
//	err := s.Update(ctx, func(tx *store.Tx) error {
//		task, err := Tasks.Edit(tx, id)
//		if err != nil {
//			return err
//		}
//		task.Data.Node = "n1"
//		return Tasks.Put(tx, task)
//	})
//
// [Store.Batch] makes many changes that need not be atomic together. Phantoms, that is objects which appear after a list has been read, are
// for [Table.WithGuard].
//
// # Watching
//
// [Store.ViewAndWatch] returns a stream of the changes after a View, with the object as it was and as it is, and says where commits end.
//
// # DynamoDB
//
// Its changes have no order over several objects, and its watches cannot prove how far they are. So a View there is no cut, there is no
// [Linearizable], and ends of commits are not told. Transactions are what they are elsewhere.
package tables
