package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/ashlar-dev/storage"
)

// Exit codes of ashlar.
const (
	ExitOK       = 0
	ExitFailed   = 1
	ExitUsage    = 2
	ExitNotFound = 3
	ExitConflict = 4
)

// CodedError is an error with its own exit code, which takes precedence over the contract's errors in its chain.
type CodedError struct {
	Code int
	Err  error
	// AfterInterrupt reports that the error is shown even after an interrupt, because the command still ran to its end.
	AfterInterrupt bool
}

func (e *CodedError) Error() string { return e.Err.Error() }
func (e *CodedError) Unwrap() error { return e.Err }

// Usagef returns an error for a wrong command line.
func Usagef(format string, args ...any) error {
	return &CodedError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// Failedf returns any other error, such as a mistake in a file. The errors it wraps do not change the exit code.
func Failedf(format string, args ...any) error {
	return &CodedError{Code: ExitFailed, Err: fmt.Errorf(format, args...)}
}

// ExitCode returns the exit code for the error of a command.
func ExitCode(err error) int {
	var coded *CodedError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &coded):
		return coded.Code
	case errors.Is(err, storage.ErrInvalid):
		return ExitUsage
	case errors.Is(err, storage.ErrNotFound):
		return ExitNotFound
	case errors.Is(err, storage.ErrCASFailure), errors.Is(err, storage.ErrWrongUid):
		return ExitConflict
	}
	return ExitFailed
}

// Cause adds the user's own timeout to an error that a backend returned because of it.
func Cause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	var coded *CodedError
	if errors.As(context.Cause(ctx), &coded) {
		return fmt.Errorf("%w: %w", coded, err)
	}
	return err
}

// OneLine returns the text of an error without line breaks and other control characters, which names may contain.
func OneLine(err error) string {
	var text strings.Builder
	for line := range strings.SplitSeq(strings.TrimSpace(err.Error()), "\n") {
		switch before := text.String(); {
		case before == "":
		case strings.HasSuffix(before, ":"):
			text.WriteByte(' ')
		default:
			text.WriteString("; ")
		}
		text.WriteString(strings.TrimSpace(line)) // drivers indent nested errors
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text.String())
}
