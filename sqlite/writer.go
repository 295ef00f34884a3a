package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
)

// writer is the one goroutine of a store that writes. Requests that wait when its turn comes share one transaction: natural
// batching, without a timer.
//
//	wait for requests ─► lock the side file ─► BEGIN IMMEDIATE ─► drain the queue ─► apply ─► COMMIT ─► unlock
//	        ▲                (in line with                                                              │
//	        │                 other processes)                                                          ▼
//	        └────────────────────────────────────────────────────── ring the doorbell ◄── acknowledge
//
// Only this goroutine stands in line for the lock, because a place in the line cannot be given up; a caller whose time is over
// just leaves the queue.
type writer struct {
	handle *handle
	conn   *conn
	queue  queue
	stop   chan struct{} // closed by close
	done   chan struct{} // closed when the goroutine has ended
	hint   chan struct{} // holds a token when this process has committed
	batch  []*request
	log    retention
	ended  error // of closing the connection, to be read after done
}

func newWriter(s *handle, c *conn) *writer {
	w := &writer{
		handle: s,
		conn:   c,
		queue:  queue{wake: make(chan struct{}, 1)},
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		hint:   make(chan struct{}, 1),
		log:    retention{age: s.options.Retention, rows: int64(s.options.RetentionRows), bytes: int64(s.options.RetentionBytes)},
	}
	w.waitInSteps()
	go w.run()
	return w
}

// waitInSteps sets the connection up for waiting in small steps: between them the writer looks whether anybody still waits for it.
func (w *writer) waitInSteps() {
	_ = w.conn.db.BusyHandler(func(_ context.Context, count int) bool {
		select {
		case <-w.stop:
			return false
		case <-time.After(time.Duration(min(count+1, 10)) * time.Millisecond):
			return count < 20
		}
	})
}

func (w *writer) run() {
	defer close(w.done)
	defer func() { w.ended = w.conn.close() }()
	for {
		select {
		case <-w.queue.wake:
		case <-w.stop:
		}
		for !w.queue.empty() && !w.stopped() {
			w.turn()
		}
		if w.stopped() {
			for _, r := range w.queue.close() {
				r.err = storage.ErrClosed
				close(r.done)
			}
			return
		}
	}
}

func (w *writer) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// turn is one turn of the circle above. It leaves the queue as it is when the database is busy with another program's write.
func (w *writer) turn() {
	// The callers of the last batch are being woken. Those that call again at once do so by the time the last of them runs, and
	// then share this batch, which is nearly twice as large as one that is taken without waiting for them.
	w.queue.asleep.Wait()
	locked := w.handle.side.lock(w.stop)
	if errors.Is(locked, errStopped) {
		return
	}
	var t txn
	err := locked
	if err == nil {
		t, err = w.begin()
	}
	if errors.Is(err, sqlite3.BUSY) {
		_ = w.handle.side.unlock() // the next turn will see
		return
	}
	w.batch = w.queue.drain(w.batch[:0])
	changed := false
	if err == nil {
		changed, err = w.finish(&t, w.batch)
	}
	if err != nil {
		changed = w.alone(w.batch, err) || changed
	}
	if locked == nil {
		_ = w.handle.side.unlock() // closing the file would release it too
	}
	for _, r := range w.batch {
		close(r.done)
	}
	clear(w.batch)
	if changed {
		w.ringHere()
		w.handle.side.ring()
	}
}

// ringHere wakes the watches of this process.
func (w *writer) ringHere() {
	select {
	case w.hint <- struct{}{}:
	default:
	}
}

// begin opens a transaction and reads what it needs to know.
func (w *writer) begin() (txn, error) {
	if err := w.conn.exec(beginImmediate); err != nil {
		return txn{}, err
	}
	t, err := newTxn(w.conn)
	if err != nil {
		_ = w.conn.abandon() // the first error tells more
	}
	return t, err
}

// finish applies requests, each of which gets its own error, and commits. An error says that none of them was carried out;
// unsure is among its causes if a later crash may bring them back.
func (w *writer) finish(t *txn, batch []*request) (changed bool, err error) {
	for _, r := range batch {
		if r.err, err = t.apply(r); err != nil {
			_ = w.conn.abandon()
			return false, err
		}
	}
	changed = t.last.seq != t.begun
	if changed {
		if err := w.log.prune(t); err != nil {
			w.log.forget()
			_ = w.conn.abandon()
			return false, err
		}
	}
	if err := w.conn.exec(commit); err != nil {
		w.log.forget()
		return w.outcome(t, onFullDisk(filepath.Dir(w.handle.path), err))
	}
	return changed, nil
}

// errUnsure says that what a failed commit has written may be found by a recovery after a crash, although nobody sees it now.
var errUnsure = errors.New("the commit failed on its way to the disk")

// outcome finds out what became of a commit that failed: the log tells.
func (w *writer) outcome(t *txn, failed error) (changed bool, err error) {
	_ = w.conn.abandon()
	if t.last.seq == t.begun {
		return false, nil
	}
	there, err := w.conn.find(t.last)
	if err != nil {
		return false, fmt.Errorf("%w: %w: %w", errUnsure, failed, err)
	}
	if !there {
		return false, fmt.Errorf("%w: %w", errUnsure, failed)
	}
	return true, nil
}

// alone carries out each request by itself after a batch has failed as a whole, so that one which cannot be done fails no
// other. What a failed commit left on the disk is overwritten by the next one that succeeds.
func (w *writer) alone(batch []*request, err error) (changed bool) {
	for _, r := range batch {
		if len(batch) > 1 || errors.Is(err, errUnsure) {
			var did bool
			did, err = w.single(r)
			changed = changed || did
		}
		switch {
		case err == nil:
		case errors.Is(err, errUnsure), errors.Is(err, sqlite3.BUSY):
			r.err = fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
		default:
			r.err = fmt.Errorf("nothing was written: %w", err)
		}
	}
	return changed
}

func (w *writer) single(r *request) (changed bool, err error) {
	t, err := w.begin()
	if err != nil {
		return false, err
	}
	return w.finish(&t, []*request{r})
}

func (w *writer) close() error {
	close(w.stop)
	<-w.done
	return w.ended
}
