// Package tables is for control planes: it keeps tables of objects in memory, with indexes, transactions and watches, over any [storage.Backend]
// that is a [storage.Transactor]. Any number of processes can share the database.
//
// # Tables
//
// A [Table] holds the resources of one type with decoded payloads. An [Index] finds objects by values that a function computes from them. Both
// are variables of the program; no code is generated:
//
//	var ByNode = tables.Index[*pb.Task, string]{Name: "node", Values: func(t *typed.Object[*pb.Task]) []string {
//		return []string{t.Data.Node}
//	}}
//	var Tasks = tables.NewTable[*pb.Task](taskType, ByNode)
//
//	s, err := tables.Open(ctx, backend, Tasks, Nodes)
//
// # Reading
//
// [Store.View] calls a function with the store at one moment, from memory. The view includes all earlier writes through the same Store. With
// [Linearizable] it includes everything that was acknowledged to any program before.
//
//	err := s.View(ctx, func(v *tables.View) error {
//		idle, err := Tasks.List(v, ByNode.Is(""), tables.NamePrefix("web-"))
//		…
//	})
//
// Objects are shared between all readers without copying, so a program must not change them. Builds with the race detector panic on such a
// change.
//
// # Writing
//
// [Store.Update] calls a function with a transaction and commits its changes if nothing that it has read was changed meanwhile, in any process.
// Otherwise it calls the function again.
//
//	err := s.Update(ctx, func(tx *tables.Tx) error {
//		task, err := Tasks.Edit(tx, id)
//		if err != nil {
//			return err
//		}
//		task.Data.Node = "n1"
//		return Tasks.Put(tx, task)
//	})
//
// [Store.Batch] makes many changes that need not be atomic together. An [Index] that is Unique allows a value once, across all processes.
// [Table.WithGuard] protects against phantoms, which are objects that appear
// after a list was read.
//
// # Watching
//
// [Store.ViewAndWatch] returns a stream of the changes after a View. Each event has the object before and after the change, and the last event of
// a commit is marked. [Store.WatchFrom] continues at the cursor of an event, in any process.
//
// # DynamoDB
//
// DynamoDB does not order changes of several objects, and its watches cannot prove how far they are. So a View is not one cut, [Linearizable] is
// not available, and commits have no marked end. Transactions have the same guarantees as elsewhere.
package tables
