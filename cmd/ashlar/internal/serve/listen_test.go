//go:build unix && !solaris && !illumos && !aix

package serve

import (
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

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
