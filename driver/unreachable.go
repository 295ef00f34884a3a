package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/ashlar-dev/storage"
)

// Unreachable returns an error with the text "cannot reach the database at ADDRESS: REASON" if err only reports that no connection
// could be made: a refused connection, an unknown host, a dial that timed out. The result matches [storage.ErrInconsistent] and all
// errors that err matches. Any other error is returned unchanged, as is one that also reports something else, such as the refusal
// of a second server.
func Unreachable(err error) error {
	var failures []dialFailure
	if !onlyDialFailures(err, &failures) || len(failures) == 0 {
		return err
	}
	return &unreachable{failures: failures, err: err}
}

// unreachable is the error of Unreachable.
type unreachable struct {
	failures []dialFailure
	err      error
}

// dialFailure is an address and the reason why no connection to it could be made.
type dialFailure struct{ address, reason string }

// Error names each address with its reason; addresses with the same reason share it.
func (e *unreachable) Error() string {
	var parts []string
	for i := 0; i < len(e.failures); {
		same := i + 1
		for same < len(e.failures) && e.failures[same].reason == e.failures[i].reason {
			same++
		}
		var addresses []string
		for _, f := range e.failures[i:same] {
			addresses = append(addresses, f.address)
		}
		parts = append(parts, fmt.Sprintf("%s: %s", strings.Join(addresses, ", "), e.failures[i].reason))
		i = same
	}
	return "cannot reach the database at " + strings.Join(parts, "; ")
}

// Unwrap returns storage.ErrInconsistent and the original error.
func (e *unreachable) Unwrap() []error { return []error{storage.ErrInconsistent, e.err} }

// onlyDialFailures appends the dial failures in the tree of err, each once. It reports whether the tree contains nothing else,
// apart from the end of a context.
func onlyDialFailures(err error, failures *[]dialFailure) bool {
	switch e := err.(type) {
	case nil:
		return true
	case *unreachable:
		return false // it has the text already
	case *net.OpError:
		if e.Op != "dial" {
			return false
		}
		var unknown *net.DNSError
		if errors.As(e.Err, &unknown) {
			return onlyDialFailures(unknown, failures)
		}
		if e.Addr == nil {
			return false
		}
		addFailure(failures, dialFailure{e.Addr.String(), dialReason(e.Err)})
		return true
	case *net.DNSError:
		addFailure(failures, dialFailure{e.Name, e.Err})
		return true
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if !onlyDialFailures(inner, failures) {
				return false
			}
		}
		return true
	}
	if inner := errors.Unwrap(err); inner != nil {
		return onlyDialFailures(inner, failures)
	}
	// Without errors.Is, because errors of package net match DeadlineExceeded by their Is method.
	return slices.Contains([]error{storage.ErrInconsistent, context.DeadlineExceeded}, err)
}

func addFailure(failures *[]dialFailure, f dialFailure) {
	if !slices.Contains(*failures, f) {
		*failures = append(*failures, f)
	}
}

// dialReason returns the text of the system's error if there is one, without the name of the system call.
func dialReason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}
