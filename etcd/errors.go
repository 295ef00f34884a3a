package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
)

// ErrNoSpace says that the cluster has reached its quota, so that it takes deletes but no writes. Nothing was changed.
// It goes on by itself once an operator has made room: compact, defragment, `etcdctl alarm disarm`.
var ErrNoSpace = errors.New("etcd is out of space (NOSPACE alarm): compact and defragment it, then disarm the alarm")

// outcomeClass is what an error says about the request that it answers.
type outcomeClass int

const (
	rejectedForGood outcomeClass = iota // not carried out, and it will not be if it is sent again
	notApplied                          // not carried out; may be sent again
	unknown                             // carried out, or not, or not yet
	finished                            // carried out, or not, but not later
)

// classify reads an error of the client.
func classify(err error) outcomeClass {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unknown
	case errors.Is(err, storage.ErrCompacted), errors.Is(err, storage.ErrClosed), errors.Is(err, storage.ErrFenced):
		return rejectedForGood
	case errors.Is(err, rpctypes.ErrNoSpace):
		// The request that reaches the quota is carried out, and then answered as those that are refused for it.
		return finished
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
		// No connection was made, so nothing went out. Should the text ever change, the fate is looked into as that of any
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

// translate gives an error of the client the contract's meaning, where it has one.
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

// unavailable is the error of a call whose context has ended, or whose cluster did not answer: cause is what it last said.
func unavailable(ctx context.Context, cause error) error {
	var lost *lostAnswer
	switch {
	case errors.Is(context.Cause(ctx), storage.ErrClosed):
		if errors.As(cause, &lost) || errors.Is(cause, storage.ErrInconsistent) {
			return fmt.Errorf("%w: %w", storage.ErrInconsistent, storage.ErrClosed) // what was sent may have happened
		}
		return storage.ErrClosed
	case ctx.Err() != nil && (cause == nil || errors.Is(cause, ctx.Err())):
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, ctx.Err())
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w (%w)", storage.ErrInconsistent, ctx.Err(), cause)
	case errors.Is(cause, storage.ErrInconsistent):
		return cause
	}
	return fmt.Errorf("%w: %w", storage.ErrInconsistent, cause)
}

// isToken reports whether a request failed because of its authentication token, which the client then renews.
func isToken(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty)
}

// maxRefusedTokens is how often a request is sent again with a fresh token before its refusal is believed.
const maxRefusedTokens = 5

// final reports whether an error is the answer, after so many attempts before.
func final(err error, attempt int) bool {
	fate := classify(err)
	return fate == rejectedForGood || fate == finished || isToken(err) && attempt >= maxRefusedTokens
}

// uncertain is the error of a write whose fate could not be found out.
func uncertain(err error, lost *lostAnswer) error {
	if errors.Is(err, storage.ErrInconsistent) {
		return fmt.Errorf("%w (%w)", err, lost)
	}
	return fmt.Errorf("%w: %w (%w)", storage.ErrInconsistent, lost, err)
}

// errLost ends a run: going on would leave changes out.
type errLost struct{ cause error }

func (e errLost) Error() string { return "history is lost: " + e.cause.Error() }
func (e errLost) Unwrap() error { return e.cause }

var errWentBack = fmt.Errorf("%w: the cluster is at an older revision than before (restored from a backup?)", storage.ErrCompacted)

// compactedError says from which revision on a member keeps history.
type compactedError struct{ oldest int64 }

func (e compactedError) Error() string {
	return fmt.Sprintf("%v: etcd keeps history from revision %d on", storage.ErrCompacted, e.oldest)
}

func (compactedError) Unwrap() error { return storage.ErrCompacted }

// lostAnswer is the error of a request that may have been carried out.
type lostAnswer struct {
	fence          int64 // what the fence was when it was sent
	cause          error
	singleMutation bool // it was of one mutation
}

func (e *lostAnswer) Error() string { return "the answer was lost: " + e.cause.Error() }
func (e *lostAnswer) Unwrap() error { return e.cause }

// finished reports whether the request has at least come to its end.
func (e *lostAnswer) finished() bool { return classify(e.cause) == finished }
