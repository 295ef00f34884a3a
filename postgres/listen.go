package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A notification only says "look"; what there is to see is in the log. It is sent after the commit and not inside the writes'
// transactions: Postgres serialises the commits of transactions that notify.

// changed tells the own feed at once, and the other processes soon, what a statement has changed.
func (b *handle) changed(ops []*op) {
	own, look := ownChanges(ops)
	if !look && len(own) == 0 {
		return
	}
	if in := b.inbox.Load(); in != nil {
		in.add(own, look)
	}
	select {
	case b.ring <- struct{}{}:
	default: // it is ringing already
	}
}

// channel is where the processes of a store meet.
func (b *handle) channel() string { return fmt.Sprintf("ashlar_%x", *b.id.Load()) }

// maxNotifyPause bounds the time between two notifications. It is otherwise as long as the last one took, so that a lone writer's
// next change finds it over, and many writers' go out together; and that once more for each that others sent meanwhile, because
// whatever wakes the others has them see this handle's changes too. Notifications wait for each other in the server and wake
// every listener, so they must not become more with every handle.
const maxNotifyPause = 100 * time.Millisecond

// listenerTTL is how long it is cached whether others listen. Whoever begins to listen looks for changes again when twice this time
// has passed, and so misses nothing.
const listenerTTL = 100 * time.Millisecond

// notify runs as long as the backend. What is left then, Close sends.
func (b *handle) notify() {
	const patience = 5 * time.Second
	var looked time.Time
	var others bool
	for {
		var began time.Time
		heard := time.Duration(0)
		select {
		case <-b.ring:
			began = time.Now()
			heard = time.Duration(b.heard.Swap(0))
			switch {
			case heard == 0 && began.Sub(looked) >= listenerTTL:
				looked, others = began, b.notifyIfHeard(patience)
			case heard > 0 || others:
				_, _ = b.exec(patience, `select `+notification, b.channel(), b.name)
			}
		case <-b.life.Done():
			return
		}
		select {
		case <-time.After(min(time.Since(began)*(1+heard), maxNotifyPause)):
		case <-b.life.Done():
			return
		}
	}
}

// notification tells the other processes. Where it fails they find out by polling.
const notification = `pg_notify($1, $2)`

// notifyIfHeard tells the other processes if there are any: those that listen hold a lock in common. It returns false if it is
// sure that there are none.
func (b *handle) notifyIfHeard(patience time.Duration) (heard bool) {
	rows, err := b.exec(patience, `
select `+notification+`
where exists (
    select from pg_locks
    where locktype = 'advisory' and objsubid = 1 and granted and pid <> $3
      and database = (select oid from pg_database where datname = current_database())
      and (classid::bigint << 32) | objid::bigint = hashtextextended($1, 0)
)`, b.channel(), b.name, b.listener.Load())
	return err != nil || rows > 0
}

func (b *handle) exec(patience time.Duration, sql string, args ...any) (rows int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tag, err := b.side.Exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}

const (
	listenPing  = 30 * time.Second // how often a silent connection is tried
	listenRetry = time.Second      // between attempts to connect
)

// listen wakes the feed for other processes' notifications, until ctx ends. It connects again by itself.
func (b *handle) listen(ctx context.Context) {
	for ctx.Err() == nil {
		b.listenOnce(ctx)
		select {
		case <-time.After(listenRetry):
		case <-ctx.Done():
		}
	}
}

func (b *handle) listenOnce(ctx context.Context) {
	connectCtx, cancel := context.WithTimeout(ctx, pollPatience)
	defer cancel()
	conn, err := pgx.ConnectConfig(connectCtx, b.opts.Listen)
	if err != nil {
		return
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // it is closed in any case
	}()
	if _, err := conn.Exec(connectCtx, "listen "+pgx.Identifier{b.channel()}.Sanitize()); err != nil {
		return
	}
	var pid int32
	err = conn.QueryRow(connectCtx, `select pg_backend_pid() from pg_advisory_lock_shared(hashtextextended($1, 0))`, b.channel()).Scan(&pid)
	if err != nil {
		return
	}
	b.listener.Store(pid)
	defer b.listener.Store(0)
	b.lookAgain()                              // for what was announced before
	settled := time.Now().Add(2 * listenerTTL) // when everybody knows that somebody listens
	for {
		wait := listenPing
		if !settled.IsZero() {
			wait = time.Until(settled)
		}
		waitCtx, cancel := context.WithTimeout(ctx, wait)
		notification, err := conn.WaitForNotification(waitCtx)
		cancel()
		switch {
		case err == nil && notification.Payload != b.name:
			b.heard.Add(1)
			b.lookAgain()
		case err == nil:
		case ctx.Err() != nil || conn.IsClosed() || !errors.Is(err, context.DeadlineExceeded):
			return
		case !settled.IsZero():
			settled = time.Time{}
			b.lookAgain() // for what nobody announced because nobody seemed to listen
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
