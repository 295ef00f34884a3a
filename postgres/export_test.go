//go:build integration

package postgres

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// OpenForgetful opens the store of a URL with a shorter retention than operators may set.
func OpenForgetful(ctx context.Context, rawURL string, retention time.Duration) (*Backend, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	t, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	t.opts.forgetful = retention
	return t.open(ctx)
}

// DelayedTimeout returns a context for calls. The test starts its timeout when the calls are as far as the test needs, so a stall before that
// does not end them too early.
func DelayedTimeout(t testing.TB) (_ context.Context, start func(timeout time.Duration)) {
	t.Helper()
	c := &delayedTimeout{fixture.Context(t), make(chan struct{})}
	end := sync.OnceFunc(func() { close(c.done) })
	context.AfterFunc(c.Context, end)
	return c, func(timeout time.Duration) { time.AfterFunc(timeout, end) }
}

type delayedTimeout struct {
	context.Context
	done chan struct{}
}

func (c *delayedTimeout) Done() <-chan struct{} { return c.done }

func (c *delayedTimeout) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// PinBlocker keeps the session that blocks writers known for an hour, and reports whether the backend knows one.
func PinBlocker(b storage.Backend) bool {
	h := b.(*Backend).handle
	found := h.currentBlocker()
	if found == nil {
		return false
	}
	pinned := *found
	pinned.foundAt = time.Now().Add(time.Hour)
	return h.blocker.CompareAndSwap(found, &pinned)
}

// PrepareNotifications opens a connection for a backend's notifications and prepares their statements. A notification that takes some seconds
// is lost, and these steps count.
func PrepareNotifications(t testing.TB, b storage.Backend) {
	t.Helper()
	n := b.(*Backend).handle.notifier
	for sql, arguments := range map[string][]any{n.sql.notify: {"unused", ""}, n.sql.notifyListeners: {"unused", "", 0}} {
		if _, err := n.exec(fixture.Timeout, sql, arguments...); err != nil {
			t.Fatal(err)
		}
	}
}
