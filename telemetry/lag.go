package telemetry

import (
	"sync"
	"time"
)

// Lag measures for how long a feed has been behind, as far as it knows. The zero value is not behind. A nil Lag measures nothing.
type Lag struct {
	mu          sync.Mutex
	waiting     int64     // the number that the feed has to reach; 0: none
	since       time.Time // when the number was known
	outageStart time.Time // since when the database has not answered; zero: it answers
}

// Update records that the feed has reached a number, and that changes up to another number were known at some time. The lag ends when the
// feed reaches a number that was known at its start.
func (l *Lag) Update(reached, known int64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > reached {
		return
	}
	l.waiting = 0
	if known > reached {
		l.waiting, l.since = known, at
	}
}

// Lost records that the database has not answered since a time. Answered ends that.
func (l *Lag) Lost(since time.Time) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outageStart.IsZero() {
		l.outageStart = since
	}
}

// Answered records that the database answers.
func (l *Lag) Answered() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outageStart = time.Time{}
}

// Reset records that the feed has ended.
func (l *Lag) Reset() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting, l.outageStart = 0, time.Time{}
}

// Duration returns the lag.
func (l *Lag) Duration() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lag time.Duration
	if l.waiting != 0 {
		lag = time.Since(l.since)
	}
	if !l.outageStart.IsZero() {
		lag = max(lag, time.Since(l.outageStart))
	}
	return lag
}
