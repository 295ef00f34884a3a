package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// writer runs the only goroutine of a store that writes. Requests that wait at the start of a transaction share it, so
// batches form without a timer.
//
//	wait for requests ─► lock the lock file ─► BEGIN IMMEDIATE ─► drain the queue ─► apply ─► COMMIT
//	        ▲                (in turn with                                                      │
//	        │                 other processes)                                                  ▼
//	        └─ acknowledge ◄── unlock ◄── notify all processes ◄── hand changes to local watches
//
// Only this goroutine waits for the lock, because a wait for flock cannot be cancelled. A caller whose context ends
// leaves the queue.
type writer struct {
	database *database
	source   *source // receives the committed rows
	conn     *conn
	queue    queue
	stop     chan struct{} // closed by close
	exitCh   chan struct{} // closed when the goroutine ends
	batch    []*request
	commits  []committedBatch // of the current run: one, or one for each request after the batch failed as a whole
	log      retention
	chains   chainCache
	known    *knownState // after the last commit, or nil
	busy     atomic.Bool // another program held SQLite's write lock in the last cycle
	closeErr error       // from closing the connection; read it after exitCh is closed
}

func newWriter(d *database, s *source, c *conn) *writer {
	w := &writer{
		database: d,
		source:   s,
		conn:     c,
		queue:    queue{wake: make(chan struct{}, 1)},
		stop:     make(chan struct{}),
		exitCh:   make(chan struct{}),
		log: retention{
			age: d.options.Retention, minAge: d.options.minRetentionTime(), rows: int64(d.options.RetentionRows), bytes: int64(d.options.RetentionBytes),
		},
	}
	w.setBusyHandler()
	go w.run()
	return w
}

// setBusyHandler makes the connection wait for SQLite's locks in small steps. Between them the writer checks whether it
// was closed.
func (w *writer) setBusyHandler() {
	_ = w.conn.db.BusyHandler(func(_ context.Context, count int) bool {
		select {
		case <-w.stop:
			return false
		case <-time.After(time.Duration(min(count+1, 10)) * time.Millisecond):
			return count < 20
		}
	})
}

// apply executes mutations through the writer and waits for the result.
func (w *writer) apply(ctx context.Context, mutations []driver.Mutation) (err error) {
	r := &request{mutations: make([]mutation, len(mutations)), guard: driver.GuardOf(ctx)}
	for i := range mutations {
		if r.mutations[i], err = newMutation(&mutations[i]); err != nil {
			return err
		}
	}
	if err := w.submit(ctx, r); err != nil {
		return err
	}
	for i := range mutations {
		m, c := &mutations[i], &r.mutations[i]
		if m.Verb == driver.Write {
			m.NewVersion = c.at.version()
		}
		if c.at.seq != 0 {
			m.Revision = revision(c.last)
		}
	}
	return nil
}

// submit enqueues a request and waits for the writer.
func (w *writer) submit(ctx context.Context, r *request) error {
	if err := w.queue.put(r); err != nil {
		return err
	}
	select {
	case <-r.resultCh:
	case <-ctx.Done():
	}
	if w.queue.withdraw(r) {
		return w.withdrawnError(ctx)
	}
	select {
	case <-r.resultCh: // possibly at the same time as the end of ctx
		return r.err
	default:
		return timeoutError(ctx)
	}
}

// withdrawnError returns the error of a request that its caller withdrew before the writer took it. Nothing was sent.
func (w *writer) withdrawnError(ctx context.Context) error {
	reason := "the writer was busy"
	switch {
	case w.database.lockFile.waiting.Load():
		reason = "another process holds the lock on " + w.database.lockFile.path
	case w.busy.Load():
		reason = "another program holds a write transaction"
	}
	return fmt.Errorf("nothing was written, because %s: %w", reason, ctx.Err())
}

func (w *writer) run() {
	defer close(w.exitCh)
	defer func() { w.closeErr = w.conn.close() }()
	for {
		select {
		case <-w.queue.wake:
		case <-w.stop:
		}
		for !w.queue.empty() && !w.isClosing() {
			w.runBatch()
		}
		if w.isClosing() {
			for _, r := range w.queue.close() {
				r.err = storage.ErrClosed
				close(r.resultCh)
			}
			return
		}
	}
}

func (w *writer) isClosing() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// runBatch runs one cycle of the diagram above. It leaves the queue unchanged if another program holds SQLite's write
// lock.
func (w *writer) runBatch() {
	// Wait until the callers of the last batch run again. Those that call again at once then share this batch. It is
	// nearly twice as large as a batch taken without the wait.
	w.queue.wakingCallers.Wait()
	locked := w.database.lockFile.lock(w.stop)
	if errors.Is(locked, errStopped) {
		return
	}
	var t txn
	err := locked
	if err == nil {
		t, err = w.begin()
	}
	w.busy.Store(errors.Is(err, sqlite3.BUSY))
	if errors.Is(err, sqlite3.BUSY) {
		_ = w.database.lockFile.unlock() // the next cycle tries again
		return
	}
	w.batch = w.queue.drain(w.batch[:0])
	w.database.batchSizes.Add(context.Background(), float64(len(w.batch)))
	if err == nil {
		err = w.applyAndCommit(&t, w.batch)
	}
	if err != nil {
		w.applyOneByOne(w.batch, &t, err)
	}
	w.announce()
	if locked == nil {
		_ = w.database.lockFile.unlock() // closing the file releases the lock too
	}
	// Close the channels last. The writer then waits, so the caller of a batch of one runs on this thread. To wake another
	// thread for it takes longer than all else but the sync.
	for _, r := range w.batch {
		close(r.resultCh)
	}
	clear(w.batch)
}

// announce notifies the watches of all processes of the commits. It holds the lock, so notifications come in the order
// of commits.
func (w *writer) announce() {
	if len(w.commits) == 0 {
		return
	}
	w.source.notify(w.commits...)
	w.database.lockFile.notify(w.commits[len(w.commits)-1].end)
	clear(w.commits)
	w.commits = w.commits[:0]
}

// begin starts a transaction and reads its initial state.
func (w *writer) begin() (txn, error) {
	if err := w.conn.exec("begin-immediate"); err != nil {
		return txn{}, err
	}
	var state storeState
	err := w.database.files.check()
	if err == nil {
		state, err = w.state()
	}
	if err != nil {
		_ = w.conn.endTransaction() // the first error is more specific
		return txn{}, err
	}
	return newTxn(w.conn, state, &w.chains), nil
}

// knownState is the state of the store after a commit of the writer. It holds in a later transaction with the same
// version of the database. To read it again would take a twentieth of a lone write.
type knownState struct {
	storeState
	version uint32
}

// state returns the state of the transaction that has begun. The next commit stores the state after it.
func (w *writer) state() (storeState, error) {
	known := w.known
	w.known = nil
	if known != nil {
		if version, err := w.conn.lastDataVersion(); err == nil && version == known.version {
			return known.storeState, nil
		}
	}
	return w.conn.storeState()
}

// keepState keeps the state after the commit of t for the next transaction.
func (w *writer) keepState(t *txn) {
	if version, err := w.conn.lastDataVersion(); err == nil {
		w.known = &knownState{t.stateAfter(), version}
	}
}

// applyAndCommit applies requests and commits. Each request gets its own error. An error of applyAndCommit means that no
// request took effect. If it matches errUnknownOutcome, a recovery after a crash may still restore the commit.
func (w *writer) applyAndCommit(t *txn, batch []*request) (err error) {
	for _, r := range batch {
		if r.err, err = t.apply(r); err != nil {
			_ = w.conn.endTransaction()
			return err
		}
	}
	changed := t.last != t.before
	if changed {
		if err := w.log.prune(t); err != nil {
			w.log.reset()
			_ = w.conn.endTransaction()
			return err
		}
	}
	if err := w.conn.exec("commit"); err != nil {
		w.log.reset()
		return w.resolveOutcome(t, withDiskFull(filepath.Dir(w.database.path), err))
	}
	if changed {
		// The commit may be in a file that was replaced meanwhile.
		if err := w.database.files.check(); err != nil {
			return fmt.Errorf("%w: %w", errUnknownOutcome, err)
		}
		w.commits = append(w.commits, w.source.committedRows(t, batch))
		w.database.changes.Store(t.last.seq - t.bounds.horizon)
	}
	w.keepState(t)
	return nil
}

// resolveOutcome determines from the log whether a failed commit took effect.
func (w *writer) resolveOutcome(t *txn, failed error) error {
	_ = w.conn.endTransaction()
	if t.last == t.before {
		return nil
	}
	found, err := w.conn.find(t.last)
	if err != nil {
		return fmt.Errorf("%w: %w: %w", errUnknownOutcome, failed, err)
	}
	if !found {
		return fmt.Errorf("%w: %w", errUnknownOutcome, failed)
	}
	w.commits = append(w.commits, committedBatch{after: t.before, end: t.last})
	return nil
}

// applyOneByOne runs each request in a transaction of its own after the batch failed as a whole in t. A failing request
// then fails no other. The next successful commit overwrites the remains of a failed one on the disk. Until then, no
// caller gets an error that excludes the write.
func (w *writer) applyOneByOne(batch []*request, t *txn, err error) {
	if !errors.Is(err, errUnknownOutcome) {
		t = nil
	}
	for _, r := range batch {
		committed := len(w.commits)
		if len(batch) > 1 || t != nil {
			err = w.commitSingle(r, t)
		}
		switch {
		case errors.Is(err, errCommitted):
			return // of all requests, each with its own error from the batch
		case err == nil:
		case t != nil, errors.Is(err, errUnknownOutcome), errors.Is(err, sqlite3.BUSY):
			r.err = fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
		default:
			r.err = fmt.Errorf("nothing was written: %w", err)
		}
		if len(w.commits) > committed {
			t = nil
		}
	}
}

// commitSingle runs one request in a transaction of its own. unsure is the transaction of an earlier attempt whose
// commit failed with an unknown outcome, or nil. Checking its outcome again is necessary because the first check may
// have failed, and because another process may have recovered the -wal file since.
func (w *writer) commitSingle(r *request, unsure *txn) error {
	t, err := w.begin()
	if err != nil {
		return err
	}
	if unsure != nil {
		found, err := w.conn.find(unsure.last)
		if found || err != nil {
			_ = w.conn.endTransaction() // the transaction is empty
		}
		if err != nil {
			return err
		}
		if found {
			w.commits = append(w.commits, committedBatch{after: unsure.before, end: unsure.last})
			return errCommitted
		}
	}
	return w.applyAndCommit(&t, []*request{r})
}

func (w *writer) close() error {
	close(w.stop)
	<-w.exitCh
	return w.closeErr
}
