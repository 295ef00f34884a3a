package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// writer is the one goroutine of a store that writes. Requests that wait when its turn comes share one transaction: natural
// batching, without a timer.
//
//	wait for requests ─► lock the side file ─► BEGIN IMMEDIATE ─► drain the queue ─► apply ─► COMMIT ─► acknowledge
//	        ▲                (in line with                                                                  │
//	        │                 other processes)                                                              ▼
//	        └───────────────────────────────────────── unlock ◄── hand own changes to watches, ring the doorbell
//
// Only this goroutine stands in line for the lock, because a place in the line cannot be given up; a caller whose time is over
// just leaves the queue.
type writer struct {
	database *database
	source   *source // is handed what was committed
	conn     *conn
	queue    queue
	stop     chan struct{} // closed by close
	exited   chan struct{} // closed when the goroutine has ended
	batch    []*request
	commits  []committedBatch // of this turn: one, or where the batch failed as a whole, one for each request
	log      retention
	chains   chainCache
	closeErr error // of closing the connection, to be read after done
}

func newWriter(d *database, s *source, c *conn) *writer {
	w := &writer{
		database: d,
		source:   s,
		conn:     c,
		queue:    queue{wake: make(chan struct{}, 1)},
		stop:     make(chan struct{}),
		exited:   make(chan struct{}),
		log: retention{
			age: d.options.Retention, minAge: d.options.minRetentionTime(), rows: int64(d.options.RetentionRows), bytes: int64(d.options.RetentionBytes),
		},
	}
	w.setBusyHandler()
	go w.run()
	return w
}

// setBusyHandler sets the connection up for waiting in small steps: between them the writer looks whether anybody still waits for it.
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

// apply carries mutations out: the goroutine does, while it waits.
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
			m.Revision = c.at.revision()
		}
	}
	return nil
}

// submit puts a request into the queue and waits for the writer.
func (w *writer) submit(ctx context.Context, r *request) error {
	if err := w.queue.put(r); err != nil {
		return err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	w.queue.withdraw(r)
	select {
	case <-r.done: // perhaps in the same moment as the end of ctx
		return r.err
	default:
		return timeoutError(ctx)
	}
}

func (w *writer) run() {
	defer close(w.exited)
	defer func() { w.closeErr = w.conn.close() }()
	for {
		select {
		case <-w.queue.wake:
		case <-w.stop:
		}
		for !w.queue.empty() && !w.isStopped() {
			w.runBatch()
		}
		if w.isStopped() {
			for _, r := range w.queue.close() {
				r.err = storage.ErrClosed
				close(r.done)
			}
			return
		}
	}
}

func (w *writer) isStopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// runBatch is one runBatch of the circle above. It leaves the queue as it is when the database is busy with another program's write.
func (w *writer) runBatch() {
	// The callers of the last batch are being woken. Those that call again at once do so by the time the last of them runs, and
	// then share this batch, which is nearly twice as large as one that is taken without waiting for them.
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
	if errors.Is(err, sqlite3.BUSY) {
		_ = w.database.lockFile.unlock() // the next turn will see
		return
	}
	w.batch = w.queue.drain(w.batch[:0])
	if err == nil {
		err = w.finish(&t, w.batch)
	}
	if err != nil {
		w.applyOneByOne(w.batch, &t, err)
	}
	for _, r := range w.batch {
		close(r.done)
	}
	clear(w.batch)
	w.announce()
	if locked == nil {
		_ = w.database.lockFile.unlock() // closing the file would release it too
	}
}

// announce tells the watches of all processes what was committed. The lock is still held, so that the doorbell is rung in the order
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

// begin opens a transaction and reads what it needs to know.
func (w *writer) begin() (txn, error) {
	if err := w.conn.exec(beginImmediate); err != nil {
		return txn{}, err
	}
	t, err := newTxn(w.conn, &w.chains)
	if err != nil {
		_ = w.conn.endTransaction() // the first error tells more
	}
	return t, err
}

// finish applies requests, each of which gets its own error, and commits. An error says that none of them was carried out;
// unsure is among its causes if a later crash may bring them back.
func (w *writer) finish(t *txn, batch []*request) (err error) {
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
	if err := w.conn.exec(commit); err != nil {
		w.log.reset()
		return w.resolveOutcome(t, withDiskFull(filepath.Dir(w.database.path), err))
	}
	if changed {
		w.commits = append(w.commits, w.source.committedRows(t, batch))
	}
	return nil
}

// resolveOutcome finds out what became of a commit that failed: the log tells.
func (w *writer) resolveOutcome(t *txn, failed error) error {
	_ = w.conn.endTransaction()
	if t.last == t.before {
		return nil
	}
	there, err := w.conn.find(t.last)
	if err != nil {
		return fmt.Errorf("%w: %w: %w", errUnknownOutcome, failed, err)
	}
	if !there {
		return fmt.Errorf("%w: %w", errUnknownOutcome, failed)
	}
	w.commits = append(w.commits, committedBatch{after: t.before, end: t.last})
	return nil
}

// applyOneByOne carries out each request by itself after a batch has failed as a whole in t, so that one which cannot be done fails no
// other. What a failed commit left on the disk is overwritten by the next one that succeeds; until then, nobody is told that
// nothing was written.
func (w *writer) applyOneByOne(batch []*request, t *txn, err error) {
	if !errors.Is(err, errUnknownOutcome) {
		t = nil
	}
	for _, r := range batch {
		told := len(w.commits)
		if len(batch) > 1 || t != nil {
			err = w.finishSingle(r, t)
		}
		switch {
		case errors.Is(err, errCommitted):
			return // all of them, each with its own error, as the batch has decided
		case err == nil:
		case t != nil, errors.Is(err, errUnknownOutcome), errors.Is(err, sqlite3.BUSY):
			r.err = fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
		default:
			r.err = fmt.Errorf("nothing was written: %w", err)
		}
		if len(w.commits) > told {
			t = nil
		}
	}
}

// finishSingle carries out a request by itself. unsure is the transaction of an earlier attempt if its commit failed on its way to the
// disk, else nil: the look after it may have failed too, or somebody has recovered the -wal file since.
func (w *writer) finishSingle(r *request, unsure *txn) error {
	t, err := w.begin()
	if err != nil {
		return err
	}
	if unsure != nil {
		found, err := w.conn.find(unsure.last)
		if found || err != nil {
			_ = w.conn.endTransaction() // nothing was done in it
		}
		if err != nil {
			return err
		}
		if found {
			w.commits = append(w.commits, committedBatch{after: unsure.before, end: unsure.last})
			return errCommitted
		}
	}
	return w.finish(&t, []*request{r})
}

func (w *writer) close() error {
	close(w.stop)
	<-w.exited
	return w.closeErr
}
