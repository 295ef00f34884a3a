package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A notification only says "look"; what there is to see is in the log. It is sent after the commit and not inside the writes'
// transactions: Postgres serialises the commits of transactions that notify.

// notifier tells the processes of a store of each other's changes.
type notifier struct {
	*database
	name string // random, of this handle: it ignores its own notifications

	bell     chan struct{} // holds a token when something changed here: other processes should look
	heard    atomic.Int64  // notifications of others since the last own one
	listener atomic.Int32  // the server's process for the connection that listens; 0: there is none
}

func newNotifier(d *database) *notifier {
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // never fails
	return &notifier{database: d, name: hex.EncodeToString(nonce), bell: make(chan struct{}, 1)}
}

// ring has other processes look, soon.
func (n *notifier) ring() {
	select {
	case n.bell <- struct{}{}:
	default: // it is ringing already
	}
}

// channel is where the processes of a store meet.
func (n *notifier) channel() string { return fmt.Sprintf("ashlar_%x", *n.id.Load()) }

// maxNotifyPause bounds the time between two notifications. It is otherwise as long as the last one took, so that a lone writer's
// next change finds it over, and many writers' go out together; and that once more for each that others sent meanwhile, because
// whatever wakes the others has them see this handle's changes too. Notifications wait for each other in the server and wake
// every listener, so they must not become more with every handle.
const maxNotifyPause = 100 * time.Millisecond

// listenerTTL is how long it is cached whether others listen. Whoever begins to listen looks for changes again when twice this time
// has passed, and so misses nothing.
const listenerTTL = 100 * time.Millisecond

// notify sends notifications until the handle is closed. What is left then, finish sends.
func (n *notifier) notify() {
	const patience = 5 * time.Second
	var looked time.Time
	var others bool
	for {
		select {
		case <-n.bell:
		case <-n.life.Done():
			return
		}
		began := time.Now()
		heard := time.Duration(n.heard.Swap(0))
		switch {
		case heard == 0 && began.Sub(looked) >= listenerTTL:
			looked, others = began, n.notifyIfHeard(patience)
		case heard > 0 || others:
			_, _ = n.exec(patience, `select `+notification, n.channel(), n.name)
		}
		select {
		case <-time.After(min(time.Since(began)*(1+heard), maxNotifyPause)):
		case <-n.life.Done():
			return
		}
	}
}

func (n *notifier) finish(patience time.Duration) {
	select {
	case <-n.bell:
		n.notifyIfHeard(patience)
	default:
	}
}

// notification tells the other processes. Where it fails they find out by polling.
const notification = `pg_notify($1, $2)`

// notifyIfHeard tells the other processes if there are any: those that listen hold a lock in common. It returns false if it is
// sure that there are none.
func (n *notifier) notifyIfHeard(patience time.Duration) (heard bool) {
	rows, err := n.exec(patience, `
select `+notification+`
where exists (
    select from pg_locks
    where locktype = 'advisory' and objsubid = 1 and granted and pid <> $3
      and database = (select oid from pg_database where datname = current_database())
      and (classid::bigint << 32) | objid::bigint = hashtextextended($1, 0)
)`, n.channel(), n.name, n.listener.Load())
	return err != nil || rows > 0
}

func (n *notifier) exec(patience time.Duration, sql string, args ...any) (rows int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tag, err := n.side.Exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}

const (
	listenPing  = 30 * time.Second // how often a silent connection is tried
	listenRetry = time.Second      // between attempts to connect
)

// listen wakes the feed for other processes' notifications, until ctx ends. It connects again by itself.
func (n *notifier) listen(ctx context.Context, lookAgain func()) {
	for ctx.Err() == nil {
		n.listenOnce(ctx, lookAgain)
		select {
		case <-time.After(listenRetry):
		case <-ctx.Done():
		}
	}
}

func (n *notifier) listenOnce(ctx context.Context, lookAgain func()) {
	connectCtx, cancel := context.WithTimeout(ctx, pollPatience)
	defer cancel()
	conn, err := pgx.ConnectConfig(connectCtx, n.opts.Listen)
	if err != nil {
		return
	}
	defer hangUp(conn)
	if _, err := conn.Exec(connectCtx, "listen "+pgx.Identifier{n.channel()}.Sanitize()); err != nil {
		return
	}
	var pid int32
	err = conn.QueryRow(connectCtx, `select pg_backend_pid() from pg_advisory_lock_shared(hashtextextended($1, 0))`, n.channel()).Scan(&pid)
	if err != nil {
		return
	}
	n.listener.Store(pid)
	defer n.listener.Store(0)
	lookAgain() // for what was announced before
	// When everybody knows that somebody listens: for what nobody announced because nobody seemed to.
	defer time.AfterFunc(2*listenerTTL, lookAgain).Stop()
	for {
		waitCtx, cancel := context.WithTimeout(ctx, listenPing)
		notification, err := conn.WaitForNotification(waitCtx)
		cancel()
		switch {
		case err == nil && notification.Payload != n.name:
			n.heard.Add(1)
			lookAgain()
		case err == nil:
		case ctx.Err() != nil || conn.IsClosed() || !errors.Is(err, context.DeadlineExceeded):
			return
		default:
			pingCtx, cancel := context.WithTimeout(ctx, pollPatience)
			err := conn.Ping(pingCtx)
			cancel()
			if err != nil {
				return
			}
		}
	}
}
