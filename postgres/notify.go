package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
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

	signal   chan struct{} // holds a token when something changed here: other processes should look
	heard    atomic.Int64  // notifications of others since the last own one
	listener atomic.Int32  // the server's process for the connection that listens; 0: there is none
}

func newNotifier(d *database) *notifier {
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // never fails
	return &notifier{database: d, name: hex.EncodeToString(nonce), signal: make(chan struct{}, 1)}
}

// ring has other processes look, soon.
func (n *notifier) ring() {
	select {
	case n.signal <- struct{}{}:
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
		case <-n.signal:
		case <-n.lifetime.Done():
			return
		}
		began := time.Now()
		heard := time.Duration(n.heard.Swap(0))
		switch {
		case heard == 0 && began.Sub(looked) >= listenerTTL:
			looked, others = began, n.notifyIfHeard(patience)
		case heard > 0 || others:
			_, _ = n.exec(patience, n.sql.notify, n.channel(), n.name)
		}
		select {
		case <-time.After(min(time.Since(began)*(1+heard), maxNotifyPause)):
		case <-n.lifetime.Done():
			return
		}
	}
}

func (n *notifier) finish(patience time.Duration) {
	select {
	case <-n.signal:
		n.notifyIfHeard(patience)
	default:
	}
}

// notifyIfHeard tells the other processes if there are any: those that listen hold a lock in common. It returns false if it is
// sure that there are none.
func (n *notifier) notifyIfHeard(patience time.Duration) (heard bool) {
	rows, err := n.exec(patience, n.sql.notifyListeners, n.channel(), n.name, n.listener.Load())
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
			pingCtx, cancel := context.WithTimeout(ctx, pollTimeout)
			err := conn.Ping(pingCtx)
			cancel()
			if err != nil {
				return
			}
		}
	}
}

// inbox is where one run of the feed is told that there is something new: look in the database, or, for changes that this handle
// made, here they are. Those it takes as they are instead of reading them back, if the change after the last is the next: nobody
// else's can then be in between.
//
// Each run has an inbox of its own, because one may still be ending when the next begins.
type inbox struct {
	signal chan struct{} // holds a token when there may be something

	mu           sync.Mutex
	localChanges []change
	bytes        int
	needsPoll    bool
	listings     []position // of watches that may have seen more than the feed
}

// inboxBytes bounds what waits for a feed that waits for the database, and what waits for changes before it. What is beyond, a poll
// reads.
const inboxBytes = 8 << 20

func weight(changes []change) (bytes int) {
	for i := range changes {
		bytes += len(changes[i].data)
	}
	return bytes
}

// currentInbox leads to the inbox of the run that is under way; what comes while there is none is dropped.
type currentInbox struct{ run atomic.Pointer[inbox] }

// open makes a new inbox. What was changed before, the first look of its run sees.
func (c *currentInbox) open() *inbox {
	in := &inbox{signal: make(chan struct{}, 1)}
	c.run.Store(in)
	return in
}

// close ends what open began, unless another run has opened one already.
func (c *currentInbox) close(in *inbox) { c.run.CompareAndSwap(in, nil) }

func (c *currentInbox) add(own []change, look bool) {
	if in := c.run.Load(); in != nil {
		in.add(own, look)
	}
}

// requestPoll has the feed look in the database.
func (c *currentInbox) requestPoll() { c.add(nil, true) }

func (c *currentInbox) addListing(at *position) {
	if in := c.run.Load(); in != nil {
		in.listingPosition(at)
	}
}

// add puts own changes in, or asks for a look in the database.
func (in *inbox) add(own []change, look bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.bytes += weight(own)
	in.needsPoll = in.needsPoll || look
	in.localChanges = append(in.localChanges, own...)
	if in.bytes > inboxBytes {
		in.needsPoll, in.localChanges, in.bytes = true, nil, 0
	}
	select {
	case in.signal <- struct{}{}:
	default: // it is ringing already
	}
}

// take empties the inbox.
func (in *inbox) take() (own []change, look bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	own, look = in.localChanges, in.needsPoll
	in.localChanges, in.needsPoll, in.bytes = nil, false, 0
	return own, look
}

// listingPosition has the feed prove the position of a watch once more when it has come there itself. A fail-over that loses commits may come
// in between: then other changes bear the numbers that the watch takes for seen, and the feed, which was behind, goes on through them.
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

// takeListings takes out the positions of watches.
func (in *inbox) takeListings() []position {
	in.mu.Lock()
	defer in.mu.Unlock()
	listings := in.listings
	in.listings = nil
	return listings
}

// localChangesOf returns the changes of mutations that a statement carried out, in order; look is set if it takes a look in the
// database to learn them: of a deletion only the database knows what it deleted, and what a pooler answers for may be another
// database by now, whose history is not the one that the feed has shown.
func localChangesOf(ms []*mutation) (own []change, look bool) {
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
			own = append(own, c)
		}
	}
	slices.SortFunc(own, func(x, y change) int { return compare(&x.at, &y.at) })
	for i := range own[:max(0, len(own)-1)] {
		own[i].more = own[i].at.revision == own[i+1].at.revision
	}
	return own, false
}

// following takes from changes those that come next after a position without a gap, of sessions up to a number. The rest stays,
// less what the position contains. The changes of one commit are all there, or none.
func following(changes []change, at *position, session uint64) (next, rest []change) {
	slices.SortFunc(changes, func(x, y change) int { return compare(&x.at, &y.at) })
	last, inside := at.revision, false // inside a commit
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
