package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// ErrNoSpace reports that the cluster has reached its quota, so it accepts deletes but no writes. The failed call has changed nothing.
// Writes succeed again without a restart once an operator has freed space: compact, defragment, `etcdctl alarm disarm`.
var ErrNoSpace = errors.New("etcd is out of space (NOSPACE alarm): compact and defragment it, then disarm the alarm")

// outcomeClass is the effect of a failed request, as far as its error shows.
type outcomeClass int

const (
	rejectedForGood outcomeClass = iota // not applied; a retry would fail, too
	notApplied                          // not applied; may be retried
	unknown                             // applied, or not, or still in flight
	appliedOrNot                        // applied or not, but no longer in flight
)

// classify returns the class of an error of the client.
func classify(err error) outcomeClass {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unknown
	case errors.Is(err, storage.ErrCompacted), errors.Is(err, storage.ErrClosed), errors.Is(err, storage.ErrFenced):
		return rejectedForGood
	case errors.Is(err, rpctypes.ErrNoSpace):
		// etcd applies the request that reaches the quota, and answers it like the requests that it refuses afterwards.
		return appliedOrNot
	case errors.Is(err, rpctypes.ErrTooManyRequests), errors.Is(err, rpctypes.ErrNoLeader), isToken(err):
		return notApplied
	}
	code := codes.Unknown
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		code = known.Code()
	} else if s, ok := status.FromError(err); ok {
		code = s.Code()
	}
	switch code {
	case codes.InvalidArgument, codes.PermissionDenied, codes.FailedPrecondition, codes.ResourceExhausted,
		codes.Unimplemented, codes.NotFound, codes.OutOfRange, codes.Unauthenticated:
		return rejectedForGood
	case codes.Unavailable:
		// There was no connection, so nothing was sent. If gRPC changes the text, the request is treated like any other with a
		// lost answer.
		if isDialing(err) {
			return notApplied
		}
	}
	return unknown
}

// isDialing reports whether a request failed because no connection could be made.
func isDialing(err error) bool {
	text := err.Error()
	return strings.Contains(text, "transport: Error while dialing") || strings.Contains(text, "transport: authentication handshake failed")
}

// translate converts an error of the client to the error of the contract with that meaning, if there is one.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: %w", storage.ErrCompacted, err)
	}
	return err
}

// unavailable returns the error of a call whose context has ended or whose cluster did not answer. cause is the last error of a request.
func unavailable(ctx context.Context, cause error) error {
	var lost *lostAnswer
	switch {
	case errors.Is(context.Cause(ctx), storage.ErrClosed):
		if errors.As(cause, &lost) || errors.Is(cause, storage.ErrInconsistent) {
			return fmt.Errorf("%w: %w", storage.ErrInconsistent, storage.ErrClosed) // the request may have been applied
		}
		return storage.ErrClosed
	case ctx.Err() != nil && (cause == nil || errors.Is(cause, ctx.Err())):
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, ctx.Err())
	case ctx.Err() != nil:
		return driver.Unreachable(fmt.Errorf("%w: %w (%w)", storage.ErrInconsistent, ctx.Err(), dialError(cause)))
	case errors.Is(cause, storage.ErrInconsistent):
		return cause
	}
	return driver.Unreachable(fmt.Errorf("%w: %w", storage.ErrInconsistent, dialError(cause)))
}

// dialFailure matches the text that gRPC gives to the failure of a dial.
var dialFailure = regexp.MustCompile(`Error while dialing: dial tcp (\S+:\d+): (?:connect: )?([^"]+)"`)

// dialError returns the failure of a dial as a net.OpError, because gRPC reports it only as text. It returns any other error
// unchanged.
func dialError(err error) error {
	var lost *lostAnswer
	m := dialFailure.FindStringSubmatch(err.Error())
	if m == nil || errors.As(err, &lost) {
		return err
	}
	return &net.OpError{Op: "dial", Net: "tcp", Addr: dialAddress(m[1]), Err: errors.New(m[2])}
}

// dialAddress is the address in a dialError.
type dialAddress string

func (dialAddress) Network() string  { return "tcp" }
func (a dialAddress) String() string { return string(a) }

// isToken reports whether the server rejected the authentication token of a request. The client then obtains a new one.
func isToken(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty)
}

// maxRefusedTokens is the number of retries with a new token before the rejection is final.
const maxRefusedTokens = 5

// final reports whether an error ends the retries of a request. attempt is the number of attempts before.
func final(err error, attempt int) bool {
	class := classify(err)
	return class == rejectedForGood || class == appliedOrNot || isToken(err) && attempt >= maxRefusedTokens
}

// uncertain returns the error of a write whose outcome could not be determined.
func uncertain(err error, lost *lostAnswer) error {
	if errors.Is(err, storage.ErrInconsistent) {
		return fmt.Errorf("%w (%w)", err, lost)
	}
	return fmt.Errorf("%w: %w (%w)", storage.ErrInconsistent, lost, err)
}

// errLost ends a run of the source, because further events would leave a gap.
type errLost struct{ cause error }

func (e errLost) Error() string { return "history is lost: " + e.cause.Error() }
func (e errLost) Unwrap() error { return e.cause }

var errWentBack = fmt.Errorf("%w: the cluster is at an older revision than before (restored from a backup?)", storage.ErrCompacted)

// errImpossible would be a defect of this package or of etcd.
var errImpossible = fmt.Errorf("%w: etcd rejected a comparison that holds", storage.ErrInconsistent)

// compactedError reports the oldest revision that a member retains.
type compactedError struct{ oldest int64 }

func (e compactedError) Error() string {
	return fmt.Sprintf("%v: etcd retains history from revision %d on", storage.ErrCompacted, e.oldest)
}

func (compactedError) Unwrap() error { return storage.ErrCompacted }

// lostAnswer is the error of a request that may have been applied.
type lostAnswer struct {
	position int64 // of the revocation in the request
	cause    error
	single   bool // the transaction had one request
}

func (e *lostAnswer) Error() string { return "the answer was lost: " + e.cause.Error() }
func (e *lostAnswer) Unwrap() error { return e.cause }

// inFlight reports whether the transaction may still be applied.
func (e *lostAnswer) inFlight() bool { return classify(e.cause) != appliedOrNot }
