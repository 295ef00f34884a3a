package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/batch"
)

// writer carries mutations out: each that comes alone in a batch with others, a transaction in a statement of its own. It finds out
// what became of them, and tells the feed.
type writer struct {
	*database
	sender
	settler
	batch    *batch.Batcher[*mutation, struct{}]
	inbox    *currentInbox
	notifier *notifier
}

func newWriter(d *database, in *currentInbox, n *notifier) *writer {
	w := &writer{database: d, sender: sender{d}, settler: settler{d}, inbox: in, notifier: n}
	w.batch = batch.New(batch.Options[*mutation]{
		MaxCalls: 256, MaxBytes: 4 << 20, Workers: 2, WorkerAt: 32, Direct: true,
		Size: func(m *mutation) int { return len(m.data) },
		Key:  func(m *mutation) string { return string(m.keyBytes) },
	}, w.writeBatch)
	return w
}

// Apply implements driver.Driver. What is one mutation joins a batch; a transaction is one statement and a commit.
func (w *writer) Apply(ctx context.Context, mutations []driver.Mutation) (err error) {
	var room [1]*mutation
	ms := room[:]
	if len(mutations) > len(room) {
		ms = make([]*mutation, len(mutations))
	}
	for i := range mutations {
		if ms[i], err = newMutation(&mutations[i]); err != nil {
			return err
		}
	}
	if len(ms) > 1 || mutations[0].Verb == driver.Check || driver.GuardOf(ctx) != nil {
		err = w.commit(ctx, ms)
	} else {
		err = w.whileBusy(ctx, ms, func() error {
			_, err := w.batch.Do(ctx, ms[0])
			return err
		})
	}
	for _, m := range ms {
		if err == nil && m.kind == kindWrite {
			m.NewVersion = versionText(m.token)
		}
		if err == nil && m.hasEffect() {
			m.Revision, m.Final = m.revision, m.isFinal
		}
	}
	return err
}

// whileBusy retries while another transaction holds a key, for which it waits here, where it takes no connection.
func (w *writer) whileBusy(ctx context.Context, ms []*mutation, try func() error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		err := try()
		if errors.Is(err, errBusy) {
			if err = w.pause(ctx, pause, err); err == nil {
				continue
			}
		}
		return unresolvedError(ms, err)
	}
}

// unresolvedError is the error of a call that ended while it waited for its next attempt: if the answer to an earlier one was lost, that
// one may have happened, or still happen.
func unresolvedError(ms []*mutation, err error) error {
	if err == nil || errors.Is(err, storage.ErrInconsistent) || len(withLost(ms)) == 0 {
		return err // a batch that is still under way may have the mutation only with the first of these errors
	}
	if errors.Is(err, storage.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
	}
	return err
}

// Load implements driver.Bulk.
func (w *writer) Load(ctx context.Context, rows []driver.Row) error {
	mutations, err := driver.Creations(rows, w.opts.MaxSize)
	if err != nil {
		return err
	}
	return w.Apply(ctx, mutations)
}

type writeMember = batch.Call[*mutation, struct{}]

func (w *writer) writeBatch(ctx context.Context, calls []*writeMember) {
	ms := make([]*mutation, len(calls))
	for i, c := range calls {
		ms[i] = c.Request
	}
	// What is known of a member is told at once: it does not have to wait for the others.
	err := w.carryOut(ctx, ms, func() {
		w.replica.recordIssue()
		for _, c := range calls {
			if c.Request.isApplied {
				c.Done(struct{}{}, nil)
			}
		}
	})
	w.replica.recordIssue()
	w.announce(ms)
	for _, c := range calls {
		c.Done(struct{}{}, c.Request.answer(err))
	}
}

// answer is the error of a member whose batch had this one.
func (m *mutation) answer(ofBatch error) error {
	switch again, refusal := m.decide(); {
	case m.isApplied:
		return nil
	case ofBatch != nil:
		return ofBatch
	case again:
		return errBusy
	case m.failure != nil: // of the store or its fence, as for a transaction
		return m.failure
	case refusal != nil:
		return &storage.OpError{Err: refusal}
	}
	return nil
}

// announce tells the own feed at once, and the other processes soon, what a statement has changed.
func (w *writer) announce(ms []*mutation) {
	if own, look := localChangesOf(ms); look || len(own) > 0 {
		w.inbox.add(own, look)
		w.notifier.ring()
	}
}

// carryOut carries out mutations of different keys, each by itself, and finds out what became of them also where an answer is
// lost. Without an error each was applied, or knows what is in its way. known is called when more were found to be applied.
func (w *writer) carryOut(ctx context.Context, ms []*mutation, known func()) error {
	slices.SortFunc(ms, byKey)
	apart := false
	return w.retryResolving(ctx, ms, func(ctx context.Context) error {
		known()
		left := pendingMutations(ms)
		err := w.sendParts(ctx, left, apart)
		apart = apart || isLockTimeout(err)
		if len(ms) > 1 && classify(err) == outcomeRejected {
			apart = true // one member may be to blame
			if again := w.sendParts(ctx, pendingMutations(left), true); classify(again) != outcomeRejected {
				err = again // the refusal is nothing to those who were not refused
			}
		}
		if err != nil {
			return err
		}
		// What was refused may have been refused because of its own earlier attempt, committed since.
		failed := slices.ContainsFunc(ms, func(m *mutation) bool { return m.failure != nil })
		return w.settle(ctx, filterMutations(withLost(ms), (*mutation).hasRefusal), failed)
	})
}

func byKey(x, y *mutation) int { return bytes.Compare(x.keyBytes, y.keyBytes) }

func pendingMutations(ms []*mutation) []*mutation {
	return filterMutations(ms, func(m *mutation) bool { return !m.isApplied })
}

// retryResolving retries to send mutations, and finds out before each attempt what became of those whose answer was lost. If it ends in
// an error, a refusal of the last attempt is their answer only if the lost ones are over for good.
func (w *writer) retryResolving(ctx context.Context, ms []*mutation, try func(ctx context.Context) error) error {
	err := w.retry(ctx, func(ctx context.Context) error {
		if err := w.settle(ctx, withLost(ms), false); err != nil {
			return err
		}
		return try(ctx)
	})
	err = unresolvedError(ms, err)
	if err == nil || errors.Is(err, storage.ErrInconsistent) || len(withLost(ms)) == 0 {
		return err
	}
	settleErr := w.retry(ctx, func(ctx context.Context) error { return w.settle(ctx, withLost(ms), true) })
	switch {
	case settleErr == nil:
		return err
	case !errors.Is(settleErr, storage.ErrInconsistent): // Close came first, or the database does not tell
		settleErr = fmt.Errorf("%w: %w", storage.ErrInconsistent, settleErr)
	}
	return errors.Join(settleErr, err)
}

// sendParts sends mutations in one statement, or each in its own.
func (w *writer) sendParts(ctx context.Context, ms []*mutation, apart bool) error {
	if !apart {
		return w.send(ctx, ms, false)
	}
	for i, m := range ms {
		if err := w.send(ctx, ms[i:i+1], false); err != nil {
			switch {
			case isLockTimeout(err):
				m.busy = true // somebody else is creating it
			case classify(err) == outcomeRejected && len(ms) > 1:
				m.failure = refusal(err) // it is nothing to the others
			default:
				return err
			}
		}
	}
	return nil
}

// commit carries out mutations of different keys, all or none of them. The error of one that failed is a *storage.OpError with its
// place in ms.
func (w *writer) commit(ctx context.Context, ms []*mutation) error {
	sorted := withPresence(ms)
	slices.SortFunc(sorted, byKey)
	err := w.whileBusy(ctx, ms, func() error {
		busy := false
		err := w.retryResolving(ctx, sorted, func(ctx context.Context) (err error) {
			busy = false
			if slices.ContainsFunc(ms, (*mutation).hasEffect) {
				return nil // an earlier attempt, and all of it
			}
			if err := w.send(ctx, sorted, true); err != nil {
				return err
			}
			busy, err = decideAll(ms)
			return err
		})
		if err == nil && busy {
			return errBusy
		}
		return err
	})
	w.replica.recordIssue() // before the feed can show the changes
	if slices.ContainsFunc(ms, (*mutation).hasEffect) {
		w.announce(sorted)
		return nil
	}
	return err
}

// withPresence returns mutations with a check beside each delete that is refused where there is nothing to delete: to the function apply
// that is no reason to leave the others undone.
func withPresence(ms []*mutation) []*mutation {
	all := slices.Clone(ms)
	for _, m := range ms {
		if m.Present {
			all = append(all, m.presence())
		}
	}
	return all
}

// decideAll is the answer to a transaction whose statement was answered.
func decideAll(ms []*mutation) (busy bool, err error) {
	for i, m := range ms {
		again, err := m.decide()
		if err != nil {
			return false, permanent{&storage.OpError{Index: i, Err: err}}
		}
		busy = busy || again
	}
	// What could have been done was not, where another mutation was in the way.
	return busy, nil
}
