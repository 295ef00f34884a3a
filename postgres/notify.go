package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A notification only requests a poll; the changes are in the log. It is sent after the commit and not inside the transaction of a
// write: Postgres serializes the commits of transactions that notify.

// notifier notifies the other processes of a store of changes.
type notifier struct {
	*database
	name string // random, to ignore the handle's own notifications

	signal   chan struct{} // has a token if this handle made a change that other processes should read
	heard    atomic.Int64  // notifications by others since the last one of this handle
	listener atomic.Int32  // process number of the listening session; 0: none
	bursts
}

func newNotifier(d *database) *notifier {
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // never fails
	return &notifier{database: d, name: hex.EncodeToString(nonce), signal: make(chan struct{}, 1)}
}

// ring requests a notification of the other processes.
func (n *notifier) ring() {
	select {
	case n.signal <- struct{}{}:
	default: // already requested
	}
}

// channel returns the notification channel of the store.
func (n *notifier) channel() string { return fmt.Sprintf("ashlar_%x", *n.id.Load()) }

// maxNotifyPause is the maximum time between two notifications. The pause is usually as long as the last notification took. So the
// next change of a single writer finds the pause expired, and the changes of many writers share a notification. The pause grows by
// the same time for each notification by others, because those also make their receivers read the changes of this handle.
// Notifications wait for each other in the server and wake every listener, so their number must not grow with the number of
// handles.
const maxNotifyPause = 100 * time.Millisecond

// listenerTTL is how long a handle caches whether there are listeners. A new listener polls again after twice this time, so it
// misses nothing.
const listenerTTL = 100 * time.Millisecond

// notify sends notifications until the handle is closed. The method finish sends the last one.
func (n *notifier) notify() {
	const timeout = 5 * time.Second
	var lastCheck time.Time
	var listeners bool
	for {
		select {
		case <-n.signal:
		case <-n.lifetime.Done():
			return
		}
		if n.awaitSilence(n.lifetime) != nil {
			n.ring() // finish sends it
			return
		}
		began := time.Now()
		payload, sent := n.payload(n.name)
		heard := time.Duration(n.heard.Swap(0))
		switch {
		case heard == 0 && began.Sub(lastCheck) >= listenerTTL:
			lastCheck, listeners = began, n.notifyListeners(timeout, payload)
		case heard > 0 || listeners:
			if _, err := n.exec(timeout, n.sql.notify, n.channel(), payload); err == nil {
				sent(began)
			}
		}
		pause := min(time.Since(began)*(1+heard), maxNotifyPause)
		if heard == 0 && !listeners {
			pause = time.Until(lastCheck.Add(listenerTTL)) // no write before that needs this goroutine
		}
		select {
		case <-time.After(pause):
		case <-n.lifetime.Done():
			return
		}
	}
}

// finish sends a requested notification.
func (n *notifier) finish(timeout time.Duration) {
	select {
	case <-n.signal:
		n.notifyListeners(timeout, n.name)
	default:
	}
}

// notifyListeners notifies the other processes if there are listeners, which hold a shared lock. It returns false if there are
// certainly none. If a notification fails, the other processes find the change by polling.
func (n *notifier) notifyListeners(timeout time.Duration, payload string) (heard bool) {
	rows, err := n.exec(timeout, n.sql.notifyListeners, n.channel(), payload, n.listener.Load())
	return err != nil || rows > 0
}

func (n *notifier) exec(timeout time.Duration, sql string, args ...any) (rows int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tag, err := n.side.Exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}

const (
	listenPing  = 30 * time.Second // interval of pings on a silent connection
	listenRetry = time.Second      // pause between attempts to connect
)

// listen calls requestPoll for the notifications of other processes, until ctx ends. It reconnects by itself.
func (n *notifier) listen(ctx context.Context, requestPoll func()) {
	for ctx.Err() == nil {
		n.listenOnce(ctx, requestPoll)
		select {
		case <-time.After(listenRetry):
		case <-ctx.Done():
		}
	}
}

func (n *notifier) listenOnce(ctx context.Context, requestPoll func()) {
	connectCtx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(connectCtx, n.opts.Listen)
	if err != nil {
		return
	}
	defer closeConn(conn)
	if _, err := conn.Exec(connectCtx, "listen "+pgx.Identifier{n.channel()}.Sanitize()); err != nil {
		return
	}
	var pid int32
	err = conn.QueryRow(connectCtx, n.sql.announceListener, n.channel()).Scan(&pid)
	if err != nil {
		return
	}
	n.listener.Store(pid)
	defer n.listener.Store(0)
	requestPoll() // for earlier notifications
	// By then, all handles have seen this listener. The poll finds the changes that were not announced before.
	defer time.AfterFunc(2*listenerTTL, requestPoll).Stop()
	for {
		waitCtx, cancel := context.WithTimeout(ctx, listenPing)
		notification, err := conn.WaitForNotification(waitCtx)
		cancel()
		switch {
		case err == nil && !strings.HasPrefix(notification.Payload, n.name):
			n.heard.Add(1)
			n.hear(notification.Payload, time.Now())
			requestPoll()
		case err == nil:
		case ctx.Err() != nil || conn.IsClosed() || !errors.Is(err, context.DeadlineExceeded):
			return
		default:
			pingCtx, cancel := context.WithTimeout(ctx, pollTimeout)
			err := conn.Ping(pingCtx)
			cancel()
			if err != nil {
				return
			}
		}
	}
}

// inbox passes news to one run of the feed: requests to poll the database, and the changes of this handle. The feed uses a change
// of this handle without reading it back if its number follows the last one: then no change of others can be in between.
//
// Each run has an inbox of its own, because a run may still be ending when the next one begins.
type inbox struct {
	signal chan struct{} // has a token if the inbox may have news

	mu           sync.Mutex
	localChanges []change
	bytes        int
	needsPoll    bool
	listings     []position // positions of watches that may be ahead of the feed
}

// inboxBytes is the maximum size of the changes that wait for the feed, and of the changes that wait for earlier ones. Beyond it,
// changes are dropped, and a poll reads them.
const inboxBytes = 8 << 20

func weight(changes []change) (bytes int) {
	for i := range changes {
		bytes += len(changes[i].data)
	}
	return bytes
}

// currentInbox refers to the inbox of the current run. News without a run is dropped.
type currentInbox struct{ run atomic.Pointer[inbox] }

// open creates a new inbox. The first poll of its run sees all earlier changes.
func (c *currentInbox) open() *inbox {
	in := &inbox{signal: make(chan struct{}, 1)}
	c.run.Store(in)
	return in
}

// close removes an inbox, unless another run has replaced it.
func (c *currentInbox) close(in *inbox) { c.run.CompareAndSwap(in, nil) }

func (c *currentInbox) add(local []change, poll bool) {
	if in := c.run.Load(); in != nil {
		in.add(local, poll)
	}
}

// requestPoll requests a poll of the database.
func (c *currentInbox) requestPoll() { c.add(nil, true) }

func (c *currentInbox) addListing(at *position) {
	if in := c.run.Load(); in != nil {
		in.listingPosition(at)
	}
}

// add adds changes of this handle, or a request for a poll.
func (in *inbox) add(local []change, poll bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.bytes += weight(local)
	in.needsPoll = in.needsPoll || poll
	in.localChanges = append(in.localChanges, local...)
	if in.bytes > inboxBytes {
		in.needsPoll, in.localChanges, in.bytes = true, nil, 0
	}
	select {
	case in.signal <- struct{}{}:
	default: // already signaled
	}
}

// take empties the inbox.
func (in *inbox) take() (local []change, poll bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	local, poll = in.localChanges, in.needsPoll
	in.localChanges, in.needsPoll, in.bytes = nil, false, 0
	return local, poll
}

// listingPosition adds the position of a watch, which the feed verifies once more when it has reached it. A fail-over that loses
// commits may come in between. Then other changes have the numbers that the watch considers as delivered, and the feed, which was
// behind, continues through them.
func (in *inbox) listingPosition(at *position) {
	if at.revision == 0 && len(at.aboveFrontier) == 0 {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if n := len(in.listings); n > 0 && compare(at, &in.listings[n-1]) == 0 &&
		at.tokenPrefix == in.listings[n-1].tokenPrefix && at.aboveFrontierDigest == in.listings[n-1].aboveFrontierDigest {
		return
	}
	in.listings = append(in.listings, *at)
}

// takeListings removes and returns the positions of watches.
func (in *inbox) takeListings() []position {
	in.mu.Lock()
	defer in.mu.Unlock()
	listings := in.listings
	in.listings = nil
	return listings
}

// localChangesOf returns the changes of applied mutations, in order. poll is true if only the database has them: the handle does
// not know the data of a deleted resource, and the answer of a pooler may come from another database, whose history differs from
// the history of the feed.
func localChangesOf(ms []*mutation) (local []change, poll bool) {
	for _, m := range ms {
		switch {
		case !m.hasEffect():
		case m.createRevision == 0 || m.kind == kindDelete || m.viaPooler:
			return nil, true
		default:
			c := change{
				at: position{revision: m.revision, index: m.index}, session: m.session,
				kind: m.kind, key: m.keyBytes, version: m.token, data: m.data, createRevision: m.createRevision, writes: m.writes,
			}
			copy(c.at.tokenPrefix[:], m.token)
			local = append(local, c)
		}
	}
	slices.SortFunc(local, func(x, y change) int { return compare(&x.at, &y.at) })
	for i := range local[:max(0, len(local)-1)] {
		local[i].more = local[i].at.revision == local[i+1].at.revision
	}
	return local, false
}

// following splits changes: next are those that follow a position without a gap, of sessions up to a number, and rest are the
// others that the position does not include. The changes of one commit are either all present, or none.
func following(changes []change, at *position, session uint64) (next, rest []change) {
	slices.SortFunc(changes, func(x, y change) int { return compare(&x.at, &y.at) })
	last, inside := at.revision, false // inside: in the middle of a commit
	for i := range changes {
		c := &changes[i]
		switch {
		case at.contains(&c.at):
		case len(rest) == 0 && c.session <= session && (c.at.revision == last+1 || c.at.revision == last && inside):
			next = append(next, *c)
			last, inside = c.at.revision, c.more
		default:
			rest = append(rest, *c)
		}
	}
	return next, rest
}
