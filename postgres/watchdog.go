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

// watchdog looks after statements that take long without a sign of life: the other end of a connection may be gone without a
// word. One that reads is given up. One that writes may be in its commit, which may rightly take long (a disk that stalls, a
// standby that is away); it is given up only if the server says that the session runs nothing. What is given up is never
// cancelled.
type watchdog struct {
	side *pgxpool.Pool
	sql  *statements

	mu         sync.Mutex
	statements map[*statementWatch]struct{}
	orphans    map[uint32]struct{} // sessions whose statement was abandoned, by the server's number, until it is over
	capacityCh chan struct{}       // closed when an orphan is gone
	timer      *time.Timer         // of the next look; nil: there is none
	isClosed   bool
	running    sync.WaitGroup // looks
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
	extraSilence time.Duration // that its silence may last
	cancel       context.CancelFunc
}

const (
	// silenceTimeout is how long a statement may give no sign of life before somebody looks.
	silenceTimeout = 5 * time.Second
	// checkInterval is how often silent statements are looked for.
	checkInterval = time.Second
	// maxOrphans bounds the sessions that a handle leaves behind, with statements that it has stopped to wait for.
	maxOrphans = 8
)

// admit waits while too many abandoned statements are still running: callers with short deadlines would else fill the
// server with them for as long as a commit cannot complete.
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

// watch returns a context for a statement on a connection, whose silence may last longer than usual by some time: what the system
// has taken over to send goes through a slow link in silence. The statement's end is reported by calling done; abandoned says that
// it may still be running on the server.
func (w *watchdog) watch(
	ctx context.Context, conn *pgx.Conn, writes bool, longer time.Duration,
) (_ context.Context, done func(abandoned bool)) {
	ctx, cancel := context.WithCancel(ctx)
	s := &statementWatch{conn: conn, began: time.Now(), writes: writes, extraSilence: longer, cancel: cancel}
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

// scheduleCheckLocked has somebody look from time to time for as long as there is something to look after.
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
			pids = nil // the database is out of reach: nothing is known
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

// judgeLocked gives up silent writers, and forgets orphans, of those sessions that the server was asked about and that run nothing.
// Of sessions that came to be silent or orphans while it answered, nothing is known.
func (w *watchdog) judgeLocked(asked []uint32, busy map[uint32]bool) {
	over := make(map[uint32]bool, len(asked))
	for _, pid := range asked {
		over[pid] = !busy[pid]
	}
	for s := range w.statements {
		if s.writes && s.silent() && over[s.conn.PgConn().PID()] {
			s.cancel()
		}
	}
	for pid := range w.orphans {
		if over[pid] {
			delete(w.orphans, pid)
			close(w.capacityCh)
			w.capacityCh = make(chan struct{})
		}
	}
}

// silent gives up silent readers and returns the sessions of silent writers and of orphans.
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
	if moved := lastActivity(s.conn); moved.After(last) {
		last = moved
	}
	return time.Since(last) > silenceTimeout+s.extraSilence
}

// busy returns those of the server's sessions that run a statement. Behind a pooler the numbers mean nothing, and none does.
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

// close ends the looking.
func (w *watchdog) close() {
	w.mu.Lock()
	w.isClosed = true
	if w.timer != nil && w.timer.Stop() {
		w.running.Done()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// activityConn is a network connection that knows when something last went through it. It is below TLS, where pgx looks for the connection
// that it binds the authentication to.
type activityConn struct {
	net.Conn
	lastActivity atomic.Int64 // nanoseconds since the program's start
}

func (l *activityConn) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 {
		l.lastActivity.Store(int64(time.Since(start)))
	}
	return n, err
}

// Write writes in pieces, so that a slow link is seen to move.
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

// lastActivity is when something last went through a connection; the zero time if it does not know.
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
