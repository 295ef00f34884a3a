package controller

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// errPanic is wrapped by the error of a call that has panicked.
var errPanic = errors.New("panic")

// protect returns a panic of a call as an error.
func protect(call func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, cause, debug.Stack())
		}
	}()
	return call()
}
