package feed

import "context"

// BackgroundCall makes one call at a time and keeps it running after its waiter leaves; the next waiter gets the result. A watch's Next may
// be called with a deadline that is shorter than a page of history, or of a snapshot, takes to read. If the reading ended with it, and
// began anew with the next call, such a watch would never get anywhere.
//
// It is for one goroutine at a time; its zero value is ready.
type BackgroundCall[T any] struct {
	answer chan answer[T] // of the call under way; nil: there is none
}

type answer[T any] struct {
	value T
	err   error
}

// Do waits for the call under way, and begins one if there is none. If ctx ends first, its error is returned, and the call
// goes on for the next Do to wait for. What ends the call itself is up to it.
func (e *BackgroundCall[T]) Do(ctx context.Context, call func() (T, error)) (T, error) {
	if e.answer == nil {
		done := make(chan answer[T], 1)
		e.answer = done
		go func() {
			value, err := call()
			done <- answer[T]{value, err}
		}()
	}
	select {
	case a := <-e.answer:
		e.answer = nil
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
