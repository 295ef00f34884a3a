package controller

import (
	"sync"
	"time"
)

// result is the kind of result of a reconcile.
type result int

const (
	resultOK result = iota
	resultRequeue
	resultError
	resultTerminal
	resultPanic
	resultTimeout
	resultCount
)

// resultNames are the values of the label "result".
var resultNames = [resultCount]string{"ok", "requeue", "error", "terminal", "panic", "timeout"}

// counts are the numbers of a controller since its process started.
type counts struct {
	mu              sync.Mutex
	results         [resultCount]int64
	seconds         float64
	ignoredRequests int64 // requests of other types
	lastSuccess     time.Time
}

func (c *counts) add(r result, began, ended time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results[r]++
	c.seconds += ended.Sub(began).Seconds()
	if r == resultOK || r == resultRequeue {
		c.lastSuccess = ended
	}
}

// totals returns the number of reconciles and of failed ones, and the time of the last success.
func (c *counts) totals() (all, failed int64, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, n := range c.results {
		all += n
		if result(r) != resultOK && result(r) != resultRequeue {
			failed += n
		}
	}
	return all, failed, c.lastSuccess
}

func (c *counts) ignore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ignoredRequests++
}
