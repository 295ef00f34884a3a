package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// outcomeClass is the outcome of a statement that returned an error.
type outcomeClass int

const (
	outcomeCommitted  outcomeClass = iota // no error
	outcomeRejected                       // refused by the database; a retry would be refused too
	outcomeNotApplied                     // without effect; a retry may succeed
	outcomeUnknown                        // the answer was lost: the statement may have taken effect
)

// SQLSTATEs. Those that begin with AS are defined by this package.
const (
	codeWarning          = "01000" // warnings without a code of their own
	codeReadOnly         = "25006"
	codeNotSupported     = "0A000" // a standby refuses a transaction that may write, or a prepared statement is out of date
	codeLockNotAvailable = "55P03"
	codeFenced           = "AS001" // the fence refuses a write
	codeLate             = "AS002" // a statement arrived after its expiry
	codeConcurrentCreate = "AS003" // another transaction created the resource
	codeSuperseded       = "AS004" // a write's guard does not hold
	codeNotANumber       = "22P02" // the proof of creations fails by this error
)

// permanent is an error that a retry cannot fix.
type permanent struct{ error }

func (e permanent) Unwrap() error { return e.error }

// permanentError marks an error as permanent if it reports that the requested data is deleted, never existed, or has moved.
func permanentError(err error) error {
	if errors.Is(err, storage.ErrCompacted) || errors.Is(err, storage.ErrInvalid) || errors.Is(err, storage.ErrMoved) {
		return permanent{err}
	}
	return err
}

// notSent is an error that occurred before the relevant statement was sent.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

var (
	// errStandby reports that a server was not queried, because a standby may not have the latest data.
	errStandby = errors.New("the server is a standby, expected a primary")
	// errLate is codeLate for statements that report it by an empty answer. It is also returned if the sender's floor belongs to
	// another history.
	errLate = errors.New("the statement arrived after its time")
	// errUnsure reports that a statement took effect, but may not be durable.
	errUnsure = errors.New("the server did not wait until the change was durable")
	// errUnknown reports that the changes which would show the outcome of an attempt are deleted.
	errUnknown = errors.New("an answer was lost, and the changes that would show the outcome have been deleted")
	// errCreatedMeanwhile is codeConcurrentCreate for statements that are not functions.
	errCreatedMeanwhile = errors.New("another transaction has created and deleted a resource meanwhile")
	// errBusy reports that another transaction holds the key.
	errBusy = errors.New("another transaction holds the key")
)

func isLate(err error) bool { return hasCode(err, codeLate) || errors.Is(err, errLate) }

func isLockTimeout(err error) bool { return hasCode(err, codeLockNotAvailable) }

func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}

// classify returns the outcome class of an error of a statement or a transaction.
func classify(err error) outcomeClass {
	if err == nil {
		return outcomeCommitted
	}
	var p permanent
	var early notSent
	switch {
	case errors.As(err, &p), errors.As(err, &early) && classify(early.error) == outcomeRejected:
		return outcomeRejected
	case early.error != nil, errors.Is(err, errCreatedMeanwhile):
		return outcomeNotApplied
	}
	var connect *pgconn.ConnectError
	connecting := errors.As(err, &connect)
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "28P01", "28000", "3D000", "42501": // password, authorization, no such database, no right to connect
			if connecting {
				return outcomeRejected
			}
		case "40001", "40P01", // serialization failure, deadlock
			codeReadOnly,
			codeLockNotAvailable, "57014", // lock timeout, cancelled (a statement_timeout of the user)
			codeLate, codeConcurrentCreate,
			"26000", codeNotSupported: // a prepared statement is missing or out of date; the next attempt prepares it again
			return outcomeNotApplied
		}
		if connecting { // the server may be starting
			return outcomeNotApplied
		}
		switch pg.Code[:min(2, len(pg.Code))] {
		case "53": // insufficient resources
			return outcomeNotApplied
		case "08", "57", "58", "XX": // connection, operator intervention, system, internal
			return outcomeUnknown
		}
		if pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC" {
			return outcomeUnknown
		}
		return outcomeRejected
	}
	if errors.Is(err, pgconn.ErrConnClosed) {
		// pgx returns this error, and calls it safe to retry, also if the answer to a simple statement (such as a commit) is lost:
		// it reads the answer twice, and the first read closes the connection.
		return outcomeUnknown
	}
	if errors.Is(err, errLate) || errors.Is(err, errStandby) || errors.Is(err, pgx.ErrTxCommitRollback) || connecting || pgconn.SafeToRetry(err) {
		return outcomeNotApplied
	}
	return outcomeUnknown
}

// refusal converts an error of the database to an error of the contract, if it comes from the fence or from a guard.
func refusal(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case codeFenced:
		return driver.DecodeFence(pg.Detail).Refusal(nil)
	case codeSuperseded:
		return driver.ErrSuperseded
	}
	return err
}

// inconsistent returns the error of a call whose context ended. last is the error of the last attempt.
func inconsistent(ctx context.Context, last error) error {
	ended := ctx.Err()
	if errors.Is(last, ended) {
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, ended)
	}
	return driver.Unreachable(fmt.Errorf("%w: %w, after: %w", storage.ErrInconsistent, ended, last))
}

var errMoved = errors.New("the connection led to another server between two statements")

var (
	errPruned = fmt.Errorf("%w: changes after the cursor have been deleted (see the parameter retention)", storage.ErrCompacted)
	errOther  = fmt.Errorf("%w: the store was replaced", storage.ErrCompacted)
	errForked = fmt.Errorf("%w: the change at the cursor is not in the database, which must have been restored from a backup, or have lost commits in a fail-over",
		storage.ErrCompacted)
)

// errDamaged ends all watches, because the damaged change may be relevant to any of them: without it they would have an unnoticed
// gap, and a wait would not repair the row. After a new list, a watch continues behind the row.
var errDamaged = fmt.Errorf("%w: a row of the log is damaged", storage.ErrCompacted)
