package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/telemetry"
)

// writer applies mutations: a single one in a batch with others, a transaction in a statement of its own. It resolves lost
// answers, and passes the changes to the feed.
type writer struct {
	*database
	sender
	settler
	batch    *batch.Batcher[*mutation, struct{}]
	inbox    *currentInbox
	notifier *notifier
	reader   *reader // for refusals
}

func newWriter(d *database, in *currentInbox, n *notifier) *writer {
	w := &writer{database: d, sender: sender{database: d}, settler: settler{d}, inbox: in, notifier: n}
	w.batch = batch.New(batch.Options[*mutation]{
		MaxCalls: 256, MaxBytes: 4 << 20, Workers: 2, WorkerAt: 32, Direct: true,
		Size: func(m *mutation) int { return len(m.data) },
		Key:  func(m *mutation) string { return string(m.keyBytes) },

		Sizes: d.telemetry.batchSizes(telemetry.Write),
	}, w.writeBatch)
	return w
}

// Apply implements driver.Driver. A single mutation joins a batch; a transaction is one statement and one commit.
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
			return w.verifyResult(ctx, ms, err)
		})
	}
	if errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid) {
		err = w.fenceOr(ctx, ms, err)
	}
	if by := w.currentBlocker(); err != nil && ctx.Err() != nil && by != nil {
		w.telemetry.Logger().WarnContext(ctx, "a foreign session blocks all writers by an advisory lock", telemetry.SessionPID, by.pid, "role", by.role)
		err = fmt.Errorf("%w: server process %d of role %q blocks all writers by an advisory lock", err, by.pid, by.role)
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

// fenceOr returns the error of a closed store instead of a conflict. A transaction or a creation that finds a conflict changes no row,
// so it does not run the trigger that closes the store.
func (w *writer) fenceOr(ctx context.Context, ms []*mutation, conflict error) error {
	hasTrigger := len(ms) == 1 && ms[0].expectedVersion != nil || replaces(ms)
	isChange := func(m *mutation) bool { return m.kind != kindCheck }
	if hasTrigger || !slices.ContainsFunc(ms, isChange) || driver.GuardOf(ctx) != nil {
		return conflict
	}
	fence, err := w.fence(ctx)
	if err != nil || fence == nil {
		return conflict // a fact, also if the fence cannot be read
	}
	return driver.DecodeFence(string(fence)).Refusal(nil)
}

// fenceAdmits reports whether the fence admits the guard of a call, as far as it can be read. The trigger can refuse the call although it does:
// above read committed it reads the fence in the snapshot of the statement, which can be older than the trigger.
func (w *writer) fenceAdmits(ctx context.Context) bool {
	guard := driver.GuardOf(ctx)
	if guard == nil {
		return false
	}
	fence, err := w.fence(ctx)
	return err == nil && fence != nil && driver.DecodeFence(string(fence)).Refusal(guard) == nil
}

// fence returns the fence of the store as text, nil for none.
func (w *writer) fence(ctx context.Context) (fence []byte, err error) {
	err = w.query(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, w.sql.readFence).Scan(&fence)
	})
	return fence, err
}

// whileBusy retries while another transaction holds a key. It waits without a connection.
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

// unresolvedError returns the error of a call that ended while it waited for its next attempt. If the answer to an earlier attempt
// was lost, that attempt may have taken effect, or still may.
func unresolvedError(ms []*mutation, err error) error {
	if err == nil || errors.Is(err, storage.ErrInconsistent) || len(withLost(ms)) == 0 {
		return err // only with ErrInconsistent may a running batch still contain the mutation
	}
	if errors.Is(err, storage.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
	}
	return err
}

// verifyResult returns the result of an attempt that has changed nothing, as of a strong read. A statement refuses a mutation by its own snapshot, which
// may lack a change with a lower number than others that were acknowledged before the call. The result is errBusy if the refusal does not hold
// any more. Without a strong read there is no proof, and its error is the result.
//
// A pending change may also make an earlier operation of a transaction fail. Only an absent or busy one is read again: the statement has locked the
// rows of the others, so no change of them was pending.
func (w *writer) verifyResult(ctx context.Context, ms []*mutation, err error) error {
	index := 0
	var op *storage.OpError
	if errors.As(err, &op) {
		index = op.Index
	}
	refused := errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid)
	if !refused && (err != nil || len(ms) > 1 || ms[0].hasEffect()) {
		return err
	}
	var reads sync.WaitGroup // together, so that they share batches
	earlier := make([]error, index)
	for i, m := range ms[:index] {
		if m.busy || !m.conflict.Exists {
			reads.Go(func() { _, earlier[i] = w.decideStrongly(ctx, i, m) })
		}
	}
	changes, decision := w.decideStrongly(ctx, index, ms[index])
	reads.Wait()
	if len(ms) > 1 {
		return confirmRefusal(err, decision, earlier)
	}
	if decision != nil {
		return decision
	}
	if changes || refused {
		return errBusy
	}
	return err
}

// confirmRefusal returns the refusal of a transaction if the strong reads agree with its statement. Otherwise the statement is repeated: only a statement
// decides on all operations at one moment.
func confirmRefusal(refusal, decision error, earlier []error) error {
	isBusy := decision == nil || errors.Is(decision, storage.ErrWrongUid) != errors.Is(refusal, storage.ErrWrongUid)
	for _, err := range append(earlier, decision) {
		var op *storage.OpError
		if err != nil && !errors.As(err, &op) {
			return err // of the read
		}
		isBusy = isBusy || err != nil && op.Index < len(earlier)
	}
	if isBusy {
		return errBusy
	}
	return refusal
}

// decideStrongly returns the decision on the operation of an index by a strong read. If the read returns the version that the statement found, the
// statement has decided: it compares the uid of the row, and the data of a damaged resource may have another one.
func (w *writer) decideStrongly(ctx context.Context, index int, m *mutation) (changes bool, err error) {
	var stored driver.Stored
	var damaged *storage.DamagedError
	switch res, err := w.reader.Get(ctx, storage.StrongConsistency, m.Key); {
	case err == nil && res == nil:
	case err == nil:
		stored = driver.Stored{Exists: true, Uid: res.GetId().GetUid(), Version: res.GetVersion()}
	case errors.As(err, &damaged):
		stored = driver.Stored{Exists: true, Uid: cmp.Or(damaged.ID.GetUid(), m.Uid), Version: damaged.Version}
	default:
		return false, fmt.Errorf("prove a refusal by a strong read: %w", err)
	}
	if stored.Exists && stored.Version == m.conflict.Version {
		stored = m.conflict
	}
	if changes, err = m.Decide(stored); err != nil {
		err = &storage.OpError{Index: index, Err: err}
	}
	return changes, err
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
	// A member whose outcome is known does not wait for the others.
	err := w.carryOut(ctx, ms, func() {
		for _, c := range calls {
			if c.Request.isApplied {
				c.Done(struct{}{}, nil)
			}
		}
	})
	w.replica.recordIssue()
	for _, c := range calls {
		c.Done(struct{}{}, c.Request.answer(err))
	}
}

// answer returns the error of a member of a batch; ofBatch is the error of the batch.
func (m *mutation) answer(ofBatch error) error {
	switch again, refusal := m.decide(); {
	case m.isApplied:
		return nil
	case ofBatch != nil:
		return ofBatch
	case again:
		return errBusy
	case m.failure != nil: // of the database or the fence, as for a transaction
		return m.failure
	case refusal != nil:
		return &storage.OpError{Err: refusal}
	}
	return nil
}

// announce passes changes to the own feed at once, and notifies the other processes soon.
func (w *writer) announce(ms []*mutation) {
	if local, poll := localChangesOf(ms); poll || len(local) > 0 {
		w.inbox.add(local, poll)
		w.notifier.ring()
	}
}

// carryOut applies mutations of different keys, independently of each other, resolves lost answers, and announces the changes. Without an error,
// each mutation was applied, or has its conflict. carryOut calls known when more of them are known to be applied.
func (w *writer) carryOut(ctx context.Context, ms []*mutation, known func()) error {
	slices.SortFunc(ms, byKey)
	publish := func() {
		fresh := filterMutations(ms, func(m *mutation) bool { return m.hasEffect() && !m.isAnnounced })
		if len(fresh) == 0 {
			return
		}
		for _, m := range fresh {
			m.isAnnounced = true
		}
		w.replica.recordIssue()
		w.announce(fresh)
		known()
	}
	defer publish()
	apart, quick := false, true
	return w.retryResolving(ctx, ms, func(ctx context.Context) error {
		publish()
		if quick {
			quick = false
			for _, group := range quickGroups(pendingMutations(ms)) {
				if err := w.sendQuick(ctx, group); classify(err) == outcomeNotApplied || classify(err) == outcomeUnknown {
					return err
				}
				publish()
			}
		}
		pending := pendingMutations(ms)
		err := w.sendParts(ctx, pending, apart)
		apart = apart || isLockTimeout(err)
		if len(ms) > 1 && classify(err) == outcomeRejected {
			apart = true // a single member may be the cause
			if again := w.sendParts(ctx, pendingMutations(pending), true); classify(again) != outcomeRejected {
				err = again // only the refused members get the refusal
			}
		}
		if err != nil {
			return err
		}
		// A refusal may be the effect of the mutation's own earlier attempt, committed since.
		failed := slices.ContainsFunc(ms, func(m *mutation) bool { return m.failure != nil })
		return w.settle(ctx, filterMutations(withLost(ms), (*mutation).hasRefusal), failed)
	})
}

func byKey(x, y *mutation) int { return bytes.Compare(x.keyBytes, y.keyBytes) }

func pendingMutations(ms []*mutation) []*mutation {
	return filterMutations(ms, func(m *mutation) bool { return !m.isApplied })
}

// retryResolving retries try, and before each attempt resolves the mutations whose answer was lost. If it ends with an error, the
// refusal of the last attempt is the answer only if no lost attempt can take effect any more.
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
	case !errors.Is(settleErr, storage.ErrInconsistent): // the handle was closed, or the database cannot resolve it
		settleErr = fmt.Errorf("%w: %w", storage.ErrInconsistent, settleErr)
	}
	return errors.Join(settleErr, err)
}

// sendParts sends mutations in one statement, or each in a statement of its own.
func (w *writer) sendParts(ctx context.Context, ms []*mutation, apart bool) error {
	if !apart {
		return w.send(ctx, ms, false)
	}
	for i, m := range ms {
		if err := w.send(ctx, ms[i:i+1], false); err != nil {
			switch {
			case isLockTimeout(err):
				m.busy = true // another transaction is creating it
			case classify(err) == outcomeRejected && len(ms) > 1:
				m.failure = refusal(err) // it does not concern the others
			default:
				return err
			}
		}
	}
	return nil
}

// commit applies all mutations, of different keys, or none. The error of a failed mutation is a *storage.OpError with its index in
// ms.
func (w *writer) commit(ctx context.Context, ms []*mutation) error {
	sorted := withPresence(ms)
	slices.SortFunc(sorted, byKey)
	err := w.whileBusy(ctx, ms, func() error {
		busy := false
		err := w.retryResolving(ctx, sorted, func(ctx context.Context) (err error) {
			busy = false
			if slices.ContainsFunc(ms, (*mutation).hasEffect) {
				return nil // an earlier attempt applied all of them
			}
			if err := w.send(ctx, sorted, true); err != nil {
				return err
			}
			if busy, err = decideAll(ms); err == nil {
				return nil
			}
			if replaces(sorted) {
				endAttempts(sorted)
			}
			// The refusal may be the effect of an earlier attempt, committed since. Until that is known, it must not be in the error.
			if unsettled := w.settle(ctx, withLost(sorted), true); unsettled != nil {
				return unsettled
			}
			return err
		})
		if err == nil && busy || errors.Is(err, storage.ErrFenced) && w.fenceAdmits(ctx) {
			return errBusy
		}
		return w.verifyResult(ctx, ms, err)
	})
	w.replica.recordIssue() // before the feed can show the changes
	if slices.ContainsFunc(ms, (*mutation).hasEffect) {
		w.announce(sorted)
		return nil
	}
	return err
}

// endAttempts records that no earlier attempt of a refused transaction that [replaces] resources can take effect any more: a version that
// is not stored any more is never stored again.
func endAttempts(ms []*mutation) {
	for _, m := range ms {
		for _, a := range m.lostAttempts {
			a.isDone = true
		}
	}
}

// withPresence returns mutations with a check for each delete that requires the resource: the function apply does not fail for a
// delete of an absent resource.
func withPresence(ms []*mutation) []*mutation {
	all := slices.Clone(ms)
	for _, m := range ms {
		if m.Present {
			all = append(all, m.presence())
		}
	}
	return all
}

// decideAll returns the result of a transaction whose statement was answered.
func decideAll(ms []*mutation) (busy bool, err error) {
	for i, m := range ms {
		again, err := m.decide()
		if err != nil {
			return false, permanent{&storage.OpError{Index: i, Err: err}}
		}
		busy = busy || again
	}
	// The other mutations were not applied either, because one conflicted.
	return busy, nil
}
