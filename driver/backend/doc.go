// Package backend turns a [driver.Driver] into a storage backend. All databases share it.
//
//	storage.Backend ──► New: input checks, deadlines, errors, copies, tokens, pages, watches
//	                       │
//	                       ▼
//	                    driver.Driver: statements, encoding, stream ──► the database
//
// The package makes every decision that does not depend on the database:
//
//   - the order of errors (storage.ErrClosed, then storage.ErrInvalid and storage.ErrTooLarge, then the context's), and the
//     operation and the key in the text of an error;
//   - deadlines: each context passed to a driver has a deadline, unless [Options] disables it;
//   - cursors and continue tokens, with the id of the store and a checksum;
//   - the join of a snapshot with the following changes, for any number of watches over one driver.Source.
package backend
