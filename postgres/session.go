package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Prepare makes a pool's configuration fit for a backend; the pools of Open have it. Without it the backend keeps its promises
// too, but a write that is given up is cancelled, and Postgres then shows a commit that waits for a synchronous standby although
// the standby does not have it.
//
// pgx sends a request to cancel whenever it gives up a connection. A connection that was prepared sends none.
func Prepare(config *pgxpool.Config) {
	before := config.BeforeConnect
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		prepareConn(c)
		return nil
	}
}

var errNoCancel = errors.New("requests to cancel are not sent")

// prepareConn changes the configuration of one connection, which no other one shares.
func prepareConn(c *pgx.ConnConfig) {
	var connected atomic.Bool // what is dialled from then on is a request to cancel
	dial, after, notice := c.DialFunc, c.AfterConnect, c.OnNotice
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() {
			return nil, errNoCancel
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &link{Conn: conn}, nil
	}
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if after != nil {
			if err := after(ctx, conn); err != nil {
				return err
			}
		}
		connected.Store(true)
		return nil
	}
	c.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if notice != nil {
			notice(conn, n)
		}
		// A commit that stops to wait for its standby succeeds with a warning, whose text depends on the server's language.
		if n.SeverityUnlocalized == "WARNING" && n.Code == warning {
			if s, ok := conn.CustomData()[sessionKey].(*session); ok {
				s.warned = true
			}
		}
	}
}

// link is a network connection that knows when something last went through it. It is below TLS, where pgx looks for the connection
// that it binds the authentication to.
type link struct {
	net.Conn
	moved atomic.Int64 // nanoseconds since the program's start
}

var start = time.Now()

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 {
		l.moved.Store(int64(time.Since(start)))
	}
	return n, err
}

// Write writes in pieces, so that a slow link is seen to move.
func (l *link) Write(p []byte) (n int, err error) {
	const piece = 64 << 10
	for {
		some, err := l.Conn.Write(p[n:min(len(p), n+piece)])
		n += some
		l.moved.Store(int64(time.Since(start)))
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// lastMove is when something last went through a connection; the zero time if it does not know.
func lastMove(conn *pgx.Conn) time.Time {
	network := conn.PgConn().Conn()
	if encrypted, ok := network.(*tls.Conn); ok {
		network = encrypted.NetConn()
	}
	if l, ok := network.(*link); ok {
		return start.Add(time.Duration(l.moved.Load()))
	}
	return time.Time{}
}

// session is what the backend knows about one connection. It belongs to whoever has the connection.
type session struct {
	serial uint64        // sessions are numbered as they come to be known
	floor  int64         // a number drawn before: what this session writes has higher ones
	asked  time.Time     // when its server was last asked for the time and the floor
	skew   time.Duration // of the server's clock, before this program's
	warned bool          // the server warned of something during the last statement
	pooled bool          // a pooler stands in between
}

const sessionKey = "ashlar"

// sessions counts the sessions of a backend. A crash of the server, or a fail-over, ends the ones before it; so one that answers
// shows that the server which an older number knew still runs. Behind a pooler sessions outlive servers, and show nothing.
type sessions struct{ last atomic.Uint64 }

func (s *sessions) of(conn *pgx.Conn) *session {
	data := conn.PgConn().CustomData()
	known, ok := data[sessionKey].(*session)
	if !ok {
		known = &session{serial: s.last.Add(1)}
		data[sessionKey] = known
	}
	return known
}

// expiry is the time, by the server's clock, after which a statement that is sent now shall not begin any more, if its way may take
// so much longer than usual.
func (s *session) expiry(longer time.Duration) time.Time {
	return time.Now().Add(s.skew + expireAfter + longer)
}

// expireAfter is how long a statement may be on its way. A pooler may keep one for as long as it likes.
const expireAfter = 2 * time.Second

// ask asks the server for its clock and its last number, and whether the process that answers is the one that the connection was made
// to: a pooler gives its clients numbers of its own.
func (s *session) ask(ctx context.Context, conn *pgx.Conn, sql *statements) error {
	var now time.Time
	var pid int32
	err := conn.QueryRow(ctx, sql.server).Scan(&s.floor, &now, &pid)
	s.skew, s.asked = time.Until(now), time.Now()
	s.pooled = uint32(pid) != conn.PgConn().PID()
	return err
}
