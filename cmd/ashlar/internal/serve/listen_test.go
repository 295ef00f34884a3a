//go:build unix && !solaris && !illumos && !aix

package serve

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A server does not wait for ever beside a process that keeps the directory of its socket locked, and ends at once if it is stopped meanwhile.
func TestListenBesideLockedDirectory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "grpc")
	unlock, err := lockSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := listen(stopped, unixPrefix+path); !errors.Is(err, context.Canceled) {
		t.Errorf("a stopped server: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := listen(ctx, unixPrefix+path); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), filepath.Dir(path)) {
			t.Errorf("%v, %v; expected an error that names the directory, in time", err, ctx.Err())
		}
	})
}

// Of several servers that find the socket of a killed server at the same time, one listens there, and the others fail.
func TestListenAtStaleSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "grpc")
	for range 50 {
		stale, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		stale.(*net.UnixListener).SetUnlinkOnClose(false)
		if err := stale.Close(); err != nil {
			t.Fatal(err)
		}
		var listening atomic.Pointer[[]net.Listener]
		var count atomic.Int32
		var servers sync.WaitGroup
		start := make(chan struct{})
		for range 8 {
			servers.Go(func() {
				<-start
				if opened, err := listen(t.Context(), unixPrefix+path); err == nil {
					count.Add(1)
					listening.Store(&opened)
				}
			})
		}
		close(start)
		servers.Wait()
		if n := count.Load(); n != 1 {
			t.Fatalf("%d servers listen at one socket", n)
		}
		if err := (*listening.Load())[0].Close(); err != nil {
			t.Fatal(err)
		}
	}
}
