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

// outcomeClass is what an error says about the statement that met it.
type outcomeClass int

const (
	outcomeCommitted  outcomeClass = iota // there was none
	outcomeRejected                       // the database said no, and would say so again
	outcomeNotApplied                     // nothing happened, and it may go better next time
	outcomeUnknown                        // the answer was lost: it may have happened
)

// SQLSTATEs. Those that begin with AS are our own.
const (
	codeWarning          = "01000" // of warnings that have none of their own
	codeReadOnly         = "25006"
	codeLockNotAvailable = "55P03"
	codeFenced           = "AS001" // the fence refuses a write
	codeLate             = "AS002" // a statement arrived after its time
	codeConcurrentCreate = "AS003" // somebody created a resource meanwhile
	codeSuperseded       = "AS004" // a write's guard does not hold
)

// permanent is an error that no retry mends.
type permanent struct{ error }

func (e permanent) Unwrap() error { return e.error }

// permanentError marks an error as one that no retry mends, where it says that what is asked for is gone or never was.
func permanentError(err error) error {
	if errors.Is(err, storage.ErrCompacted) || errors.Is(err, storage.ErrInvalid) {
		return permanent{err}
	}
	return err
}

// notSent is an error of what precedes the statement that counts.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

var (
	// errStandby says that nothing was asked of a server, because it does not know the present.
	errStandby = errors.New("the server is a standby, expected a primary")
	// errLate says what late says, where a statement answers so by answering nothing, or that the floor of its sender is of another history.
	errLate = errors.New("the statement arrived after its time")
	// errUnsure says that a statement took effect, and that it is not known to be durable.
	errUnsure = errors.New("the server did not wait until it was durable")
	// errUnknown says that the history which would show what became of an attempt is gone.
	errUnknown = errors.New("an answer was lost, and the changes that would tell the outcome have been deleted")
	// errBusy says that another transaction holds the key.
	errBusy = errors.New("another transaction holds the key")
)

func isLate(err error) bool { return hasCode(err, codeLate) || errors.Is(err, errLate) }

func isLockTimeout(err error) bool { return hasCode(err, codeLockNotAvailable) }

func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}

// classify judges an error of a statement or a transaction.
func classify(err error) outcomeClass {
	if err == nil {
		return outcomeCommitted
	}
	var p permanent
	var early notSent
	switch {
	case errors.As(err, &p), errors.As(err, &early) && classify(early.error) == outcomeRejected:
		return outcomeRejected
	case early.error != nil:
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
			"26000", "0A000": // a prepared statement is gone or out of date; the next attempt prepares it anew
			return outcomeNotApplied
		}
		if connecting { // a server that starts will have started
			return outcomeNotApplied
		}
		switch pg.Code[:min(2, len(pg.Code))] {
		case "53": // the server is out of something
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
		// pgx says so, and that it is safe to retry, also when the answer to a simple statement (such as a commit) is lost:
		// it looks for the answer twice, and the first look closes the connection.
		return outcomeUnknown
	}
	if errors.Is(err, errLate) || errors.Is(err, errStandby) || errors.Is(err, pgx.ErrTxCommitRollback) || connecting || pgconn.SafeToRetry(err) {
		return outcomeNotApplied
	}
	return outcomeUnknown
}

// refusal gives an error of the database the contract's meaning, where it is the fence's or a guard's.
func refusal(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case codeFenced:
		return driver.FenceError(pg.Detail)
	case codeSuperseded:
		return driver.ErrSuperseded
	}
	return err
}

// inconsistent is the error of a call that ran out of time; last is that of its last attempt.
func inconsistent(ctx context.Context, last error) error {
	over := ctx.Err()
	if errors.Is(last, over) {
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, over)
	}
	return driver.Unreachable(fmt.Errorf("%w: %w, after: %w", storage.ErrInconsistent, over, last))
}

var errMoved = errors.New("the server was replaced by another one between two statements")

var (
	errPruned = fmt.Errorf("%w: changes after the cursor have been deleted (see the parameter retention)", storage.ErrCompacted)
	errOther  = fmt.Errorf("%w: the store was replaced", storage.ErrCompacted)
	errForked = fmt.Errorf("%w: the change at the cursor is not in the database, which must have been restored from a backup, or have lost commits in a fail-over",
		storage.ErrCompacted)
)

// errDamaged ends watches at once, as nobody knows which of them want the change: leaving it out would be a gap that nobody hears
// of, and no waiting mends it. Whoever lists again goes on behind it.
var errDamaged = fmt.Errorf("%w: a row of the log is damaged", storage.ErrCompacted)
