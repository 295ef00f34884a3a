package driver

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
)

// Uncertain returns the error of mutations that may have been applied. It has the text of err and matches [storage.ErrInconsistent]. It also matches
// [storage.ErrClosed] and the errors of a context if err does. It matches nothing else, because most other errors say that nothing was changed.
func Uncertain(err error) error {
	u := &uncertain{text: err.Error(), matches: []error{storage.ErrInconsistent}}
	for _, kept := range []error{storage.ErrClosed, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, kept) {
			u.matches = append(u.matches, kept)
		}
	}
	return u
}

// uncertain is the error of Uncertain.
type uncertain struct {
	text    string
	matches []error
}

func (e *uncertain) Error() string { return e.text }

func (e *uncertain) Unwrap() []error { return e.matches }
