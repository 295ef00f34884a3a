package postgres

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// watchdog abandons statements on silent connections, because a peer can disappear without closing the connection. A silent read
// is abandoned. A silent write may be in its commit, which may rightly take long (a stalled disk, an unreachable standby). It is
// abandoned only if the server reports that the session runs nothing. The watchdog never cancels a statement on the server.
type watchdog struct {
	side *pgxpool.Pool
	sql  *statements

	mu         sync.Mutex
	statements map[*statementWatch]struct{}
	orphans    map[uint32]struct{} // process numbers of sessions whose abandoned statement may still run
	capacityCh chan struct{}       // closed when an orphan ends
	timer      *time.Timer         // of the next check; nil: none
	isClosed   bool
	running    sync.WaitGroup // checks
}

func newWatchdog(side *pgxpool.Pool, sql *statements) *watchdog {
	return &watchdog{
		side: side, sql: sql, statements: map[*statementWatch]struct{}{}, orphans: map[uint32]struct{}{}, capacityCh: make(chan struct{}),
	}
}

type statementWatch struct {
	conn         *pgx.Conn
	began        time.Time
	writes       bool
	extraSilence time.Duration // addition to silenceTimeout
	cancel       context.CancelFunc
}

const (
	// silenceTimeout is how long a statement may lack activity before it is checked.
	silenceTimeout = 5 * time.Second
	// checkInterval is the interval of the checks for silent statements.
	checkInterval = time.Second
	// maxOrphans is the maximum number of sessions with abandoned statements of a handle.
	maxOrphans = 8
)

// admit blocks while too many abandoned statements are still running. Otherwise callers with short deadlines would fill the server
// with statements while a commit cannot complete.
func (w *watchdog) admit(ctx context.Context) error {
	for {
		w.mu.Lock()
		full, room := len(w.orphans) >= maxOrphans, w.capacityCh
		w.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return notSent{ctx.Err()}
		}
	}
}

// watch returns a context for a statement on a connection. extra extends the timeout for silence: on a slow link, the system sends
// buffered data without visible activity. The caller calls done after the statement; abandoned means that the statement may still
// run on the server.
func (w *watchdog) watch(
	ctx context.Context, conn *pgx.Conn, writes bool, extra time.Duration,
) (_ context.Context, done func(abandoned bool)) {
	ctx, cancel := context.WithCancel(ctx)
	s := &statementWatch{conn: conn, began: time.Now(), writes: writes, extraSilence: extra, cancel: cancel}
	w.mu.Lock()
	w.statements[s] = struct{}{}
	w.scheduleCheckLocked()
	w.mu.Unlock()
	return ctx, func(abandoned bool) {
		w.mu.Lock()
		delete(w.statements, s)
		if abandoned && writes {
			w.orphans[conn.PgConn().PID()] = struct{}{}
			w.scheduleCheckLocked()
		}
		w.mu.Unlock()
		cancel()
	}
}

// scheduleCheckLocked schedules the next check, unless it is scheduled already.
func (w *watchdog) scheduleCheckLocked() {
	if w.timer == nil && !w.isClosed {
		w.running.Add(1)
		w.timer = time.AfterFunc(checkInterval, w.check)
	}
}

func (w *watchdog) check() {
	defer w.running.Done()
	pids := w.silent()
	var busy map[uint32]bool
	if len(pids) > 0 {
		var err error
		if busy, err = w.busy(pids); err != nil {
			pids = nil // the database is unreachable
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judgeLocked(pids, busy)
	w.timer = nil
	if len(w.statements)+len(w.orphans) > 0 {
		w.scheduleCheckLocked()
	}
}

// judgeLocked acts on the queried sessions that run nothing: it abandons their silent writes, and removes their orphans. It
// ignores sessions that became silent or orphans during the query.
func (w *watchdog) judgeLocked(queried []uint32, busy map[uint32]bool) {
	idle := make(map[uint32]bool, len(queried))
	for _, pid := range queried {
		idle[pid] = !busy[pid]
	}
	for s := range w.statements {
		if s.writes && s.silent() && idle[s.conn.PgConn().PID()] {
			s.cancel()
		}
	}
	for pid := range w.orphans {
		if idle[pid] {
			delete(w.orphans, pid)
			close(w.capacityCh)
			w.capacityCh = make(chan struct{})
		}
	}
}

// silent abandons silent reads, and returns the sessions of silent writers and of orphans.
func (w *watchdog) silent() (pids []uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.statements {
		switch {
		case !s.silent():
		case s.writes:
			pids = append(pids, s.conn.PgConn().PID())
		default:
			s.cancel()
		}
	}
	for pid := range w.orphans {
		pids = append(pids, pid)
	}
	return pids
}

func (s *statementWatch) silent() bool {
	last := s.began
	if activity := lastActivity(s.conn); activity.After(last) {
		last = activity
	}
	return time.Since(last) > silenceTimeout+s.extraSilence
}

// busy returns the sessions that run a statement. Behind a pooler the numbers are meaningless, and no session is busy.
func (w *watchdog) busy(pids []uint32) (map[uint32]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), silenceTimeout)
	defer cancel()
	numbers := make([]int32, len(pids))
	for i, pid := range pids {
		numbers[i] = int32(pid)
	}
	busy := make(map[uint32]bool)
	var pid int32
	rows, _ := w.side.Query(ctx, w.sql.busySessions, numbers) // an error shows in the rows
	_, err := pgx.ForEachRow(rows, []any{&pid}, func() error {
		busy[uint32(pid)] = true
		return nil
	})
	return busy, err
}

// close stops the checks.
func (w *watchdog) close() {
	w.mu.Lock()
	w.isClosed = true
	if w.timer != nil && w.timer.Stop() {
		w.running.Done()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// activityConn is a network connection that records its last activity. It is below TLS, where pgx finds the connection for channel
// binding.
type activityConn struct {
	net.Conn
	lastActivity atomic.Int64 // nanoseconds since the start of the program
}

func (l *activityConn) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 {
		l.lastActivity.Store(int64(time.Since(start)))
	}
	return n, err
}

// Write writes in pieces, so that a slow link shows activity.
func (l *activityConn) Write(p []byte) (n int, err error) {
	const piece = 64 << 10
	for {
		some, err := l.Conn.Write(p[n:min(len(p), n+piece)])
		n += some
		l.lastActivity.Store(int64(time.Since(start)))
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

var start = time.Now()

// lastActivity returns the time of the last activity of a connection, or the zero time if it is not recorded.
func lastActivity(conn *pgx.Conn) time.Time {
	network := conn.PgConn().Conn()
	if encrypted, ok := network.(*tls.Conn); ok {
		network = encrypted.NetConn()
	}
	if l, ok := network.(*activityConn); ok {
		return start.Add(time.Duration(l.lastActivity.Load()))
	}
	return time.Time{}
}
