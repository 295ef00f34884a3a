//go:build integration

package env

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

// InterceptedPostgres is a Postgres server whose disk can stall, so that writes reach the cache but flushes block, and whose clock can
// be set.
type InterceptedPostgres struct {
	*PostgresServer
}

//go:embed preload/*.c
var preloadSources embed.FS

const (
	preloadLibrary = "/usr/local/lib/ashlar-preload.so"
	stallSwitch    = "/tmp/stall"
	skewFile       = "/tmp/skew"
)

// buildPreload compiles the library that intercepts the server's system calls.
var buildPreload = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "ashlar-preload-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a directory in the system's temporary one
	if err := os.CopyFS(dir, preloadSources); err != nil {
		return nil, err
	}
	sources, err := filepath.Glob(filepath.Join(dir, "preload", "*.c"))
	if err != nil {
		return nil, err
	}
	out := filepath.Join(dir, "preload.so")
	args := append([]string{"-O2", "-shared", "-fPIC", "-nostdlib", "-o", out}, sources...)
	if text, err := exec.Command(cmp.Or(os.Getenv("CC"), "gcc"), args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("a C compiler is needed (make cc): %w\n%s", err, text)
	}
	return os.ReadFile(out)
})

// StartInterceptedPostgres starts such a server for one test. args are passed to it.
func StartInterceptedPostgres(t testing.TB, args ...string) *InterceptedPostgres {
	t.Helper()
	library, err := buildPreload()
	if err != nil {
		t.Fatalf("env: %v", err)
	}
	s := postgresSpec(args...)
	s.files = []testcontainers.ContainerFile{{Reader: bytes.NewReader(library), ContainerFilePath: preloadLibrary, FileMode: 0o755}}
	s.env["LD_PRELOAD"] = preloadLibrary
	c := start(t, s)
	return &InterceptedPostgres{&PostgresServer{Container: c, URL: postgresURL(c.Addr)}}
}

// SetClock sets the server's clock ahead of the host's; 0 removes the difference.
func (d *InterceptedPostgres) SetClock(t testing.TB, ahead time.Duration) {
	t.Helper()
	// Renamed into place, so that no process reads a part of the number.
	d.Exec(t, "sh", "-c", fmt.Sprintf("echo %d >%s.new && mv %[2]s.new %[2]s", int(ahead.Seconds()), skewFile))
}

// Stall stalls the disk until Unstall is called.
func (d *InterceptedPostgres) Stall(t testing.TB) {
	t.Helper()
	d.Exec(t, "touch", stallSwitch)
}

// Unstall ends the stall.
func (d *InterceptedPostgres) Unstall(t testing.TB) {
	t.Helper()
	d.Exec(t, "rm", stallSwitch)
}

// AwaitStalled waits until at least one session of the server waits for the stalled disk.
func (d *InterceptedPostgres) AwaitStalled(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		err := query(ctx, d.URL, `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'
			AND lower(wait_event) IN ('walsync', 'walwrite') AND state = 'active'`, &n)
		if err == nil && n > 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("env: no session waits for the disk: %v", err)
		case <-tick.C:
		}
	}
}
