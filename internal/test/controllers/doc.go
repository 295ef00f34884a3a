// Package controllers tests that controllers keep their guarantees while databases crash, freeze, lose answers and discard their history, and while
// the processes that run the controllers are killed and paused.
//
//	make torture-controllers FOR=5m BACKEND=postgres
//
// Several processes run the same controllers over one store, and a writer changes the resources at random. After the faults have ended:
//   - each resource was reconciled at its last version: the results that the controllers have written match the stored resources;
//   - no write of a tenure was committed after a write of a later one;
//   - each process ends in order and leaves no goroutine.
package controllers
