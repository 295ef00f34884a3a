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

// changed tells the own feed at once, and the other processes soon, that there is something new.
func (b *Backend) changed() {
	for _, bell := range []chan struct{}{b.wake, b.ring} {
		select {
		case bell <- struct{}{}:
		default: // it is ringing already
		}
	}
}

// channel is where the processes of a store meet.
func (b *Backend) channel() string { return fmt.Sprintf("ashlar_%x", b.id[:]) }

// notifyPause is the least time between two notifications: the first of a quiet period goes out at once, later ones together.
const notifyPause = 2 * time.Millisecond

// notify runs as long as the backend. What is left then, Close sends.
func (b *Backend) notify() {
	for {
		select {
		case <-b.ring:
			b.sendNotify(5 * time.Second)
		case <-b.life.Done():
			return
		}
		select {
		case <-time.After(notifyPause):
		case <-b.life.Done():
			return
		}
	}
}

// sendNotify tells the other processes. Where it fails they find out by polling.
//
// The transaction also writes to the server's log, so that its commit is on disk before anybody sees that it ended: else
// its id could be given out again after a crash, to a change that a watch would then take for seen.
func (b *Backend) sendNotify(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _ = b.side.Exec(ctx, `select pg_notify($1, $2), pg_logical_emit_message(true, 'ashlar', '')`, b.channel(), b.name)
}

const (
	listenPing  = 30 * time.Second // how often a silent connection is tried
	listenRetry = time.Second      // between attempts to connect
)

// listen wakes the feed for other processes' notifications, until ctx ends. It connects again by itself.
func (b *Backend) listen(ctx context.Context) {
	for ctx.Err() == nil {
		b.listenOnce(ctx)
		select {
		case <-time.After(listenRetry):
		case <-ctx.Done():
		}
	}
}

func (b *Backend) listenOnce(ctx context.Context) {
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
	b.lookAgain() // for what was announced before
	for {
		waitCtx, cancel := context.WithTimeout(ctx, listenPing)
		notification, err := conn.WaitForNotification(waitCtx)
		cancel()
		switch {
		case err == nil && notification.Payload != b.name:
			b.lookAgain()
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

func (b *Backend) lookAgain() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}
