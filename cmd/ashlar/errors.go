package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/ashlar-dev/storage"
)

const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 3
	exitConflict = 4
)

// codedError is an error whose exit code does not follow from the contract's errors in it.
type codedError struct {
	code int
	err  error
	// after says that it counts after an interruption, too: the command went on to its end then.
	after bool
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// usagef is a mistake in the command line.
func usagef(format string, args ...any) error {
	return &codedError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// failedf is any other failure, such as a mistake in a file, whatever it wraps.
func failedf(format string, args ...any) error {
	return &codedError{code: exitFailed, err: fmt.Errorf(format, args...)}
}

func exitCode(err error) int {
	var coded *codedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, storage.ErrInvalid):
		return exitUsage
	case errors.Is(err, storage.ErrNotFound):
		return exitNotFound
	case errors.Is(err, storage.ErrCASFailure), errors.Is(err, storage.ErrWrongUid):
		return exitConflict
	}
	return exitFailed
}

// cause puts the user's own timeout in place of what a backend makes of it.
func cause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	var coded *codedError
	if errors.As(context.Cause(ctx), &coded) {
		return fmt.Errorf("%w: %w", coded, err)
	}
	return err
}

// oneLine returns an error's text without line breaks and other control characters, which names may hold.
func oneLine(err error) string {
	var text strings.Builder
	for line := range strings.SplitSeq(strings.TrimSpace(err.Error()), "\n") {
		switch before := text.String(); {
		case before == "":
		case strings.HasSuffix(before, ":"):
			text.WriteByte(' ')
		default:
			text.WriteString("; ")
		}
		text.WriteString(strings.TrimSpace(line)) // drivers indent what belongs together
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text.String())
}
