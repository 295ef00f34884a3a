package postgres

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
)

// In a burst, several handles write so often that each could poll all the time, and the polls and notifications of all handles would
// take most of the database's time from the writes. The feeds then gather: they wait before the next poll, so that it reads more changes.
// A handle whose feed gathers marks its notification. The receivers poll by themselves for burstWindow, and no handle notifies for
// burstSilence. So one notification in that time serves all handles, however many there are.
//
// A handle notifies of its last change after the silence, which ends before the window. So a change that no receiver has read by then
// has a notification of its own.
const (
	burstMark    = "+" // the end of a marked notification
	burstWindow  = time.Second
	burstSilence = burstWindow / 2
	burstJitter  = burstWindow / 4 // of the end of the silence, to keep the handles from notifying at once
	// peerTTL is how long another handle is considered active after its last notification. It exceeds the silence.
	peerTTL = 3 * burstWindow
)

// bursts is the load of a store as one handle observes it. Without notifications of other handles, a feed does not gather.
type bursts struct {
	heardAt  atomic.Pointer[time.Time] // time of the last notification of another handle
	markedAt atomic.Pointer[time.Time] // time of the last marked notification of any handle
	gathers  atomic.Bool               // the feed of this handle gathers
}

// within reports whether a time is less than a duration ago.
func within(at *atomic.Pointer[time.Time], ago time.Duration, now time.Time) bool {
	t := at.Load()
	return t != nil && now.Sub(*t) < ago
}

// hasPeers reports whether other handles are active.
func (b *bursts) hasPeers(now time.Time) bool { return within(&b.heardAt, peerTTL, now) }

// inWindow reports whether the feed must poll without notifications.
func (b *bursts) inWindow(now time.Time) bool { return within(&b.markedAt, burstWindow, now) }

// hear records a notification of another handle.
func (b *bursts) hear(payload string, now time.Time) {
	b.heardAt.Store(&now)
	if strings.HasSuffix(payload, burstMark) {
		b.markedAt.Store(&now)
	}
}

// payload returns the payload of a notification of the handle with this name, and a function to call after it was sent.
func (b *bursts) payload(name string) (payload string, sent func(at time.Time)) {
	if !b.gathers.Load() {
		return name, func(time.Time) {}
	}
	return name + burstMark, func(at time.Time) { b.markedAt.Store(&at) }
}

// silence returns how long the handle must not notify.
func (b *bursts) silence(jitter time.Duration, now time.Time) time.Duration {
	if at := b.markedAt.Load(); at != nil {
		return burstSilence + jitter - now.Sub(*at)
	}
	return 0
}

// awaitSilence blocks until the handle may notify, or until ctx ends.
func (b *bursts) awaitSilence(ctx context.Context) error {
	jitter := rand.N(burstJitter)
	for wait := b.silence(jitter, time.Now()); wait > 0; wait = b.silence(jitter, time.Now()) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// longPause is the limit of pauses that a request for a poll cuts short. A longer pause because of an error or a stalled commit ignores
// requests.
const longPause = 8 * time.Millisecond

// pace contains the times of the next polls.
type pace struct {
	proofAt   time.Time // the earliest time for a proof, which does not wait for more changes
	requestAt time.Time // the earliest time for another request
	pollAt    time.Time // the time of a poll without a request; zero for none
}

// pace returns the times of the next polls after a poll that took some time and found changes. The pause is as long as the poll, or, while other
// handles are active, as long as a poll for each change: with few changes a feed is prompt, with many it gathers.
func (b *bursts) pace(now time.Time, took time.Duration, found int, latency time.Duration) (p pace) {
	short := min(took, longPause)
	pause := short
	if b.hasPeers(now) {
		pause = max(short, min(took*time.Duration(found), latency))
	}
	p.proofAt, p.requestAt = now.Add(short), now.Add(pause)
	gathers := found > 1 && pause >= latency/2
	b.gathers.Store(gathers)
	if gathers || b.inWindow(now) {
		p.pollAt = now.Add(latency)
	}
	return p
}
