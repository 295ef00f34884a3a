// Package storetest is the suite that a store has to pass on every backend: rules S1 to S8 of [Rules]. It is written for authors of
// backends and of layers around them, in this repository and outside, who have passed package conformance.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{Handles: func(t testing.TB) func(context.Context) (storage.Backend, error) {
//			url := "mydb://" + newSchema(t)
//			return func(ctx context.Context) (storage.Backend, error) { return storage.Open(ctx, url) }
//		}})
//	}
//
// Each rule gets a new, empty database, and two stores on two handles of it, which write at the same time. An exemption is a sentence that
// says why, and is printed; nothing is skipped in silence.
//
// No check looks at a clock. What may happen at any time is provoked by load, so a run may pass over a fault; none finds one that is not
// there. The suite's own tests hold a broken store for every rule, which the rule finds.
package storetest
