package feed

import "context"

// BackgroundCall runs one call at a time and continues it after its waiter has left; the next waiter gets the result. The deadline
// of a Next may be shorter than the read of a page of history or of a snapshot. If the read ended with that deadline, the watch
// would never make progress.
//
// It is not safe for concurrent use. The zero value is ready to use.
type BackgroundCall[T any] struct {
	answer chan answer[T] // of the running call; nil if there is none
}

type answer[T any] struct {
	value T
	err   error
}

// Do waits for the running call, and starts one if there is none. If ctx ends first, Do returns its error, and the call continues
// for the next Do. The call limits its own time.
func (b *BackgroundCall[T]) Do(ctx context.Context, call func() (T, error)) (T, error) {
	if b.answer == nil {
		done := make(chan answer[T], 1)
		b.answer = done
		go func() {
			value, err := call()
			done <- answer[T]{value, err}
		}()
	}
	select {
	case a := <-b.answer:
		b.answer = nil
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
