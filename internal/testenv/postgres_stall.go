//go:build integration

package testenv

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

// StallingDisk is a Postgres server whose disk can stall: writes reach the cache, and whoever forces them to the disk waits.
type StallingDisk struct {
	*PostgresServer
}

//go:embed preload/stall.c
var stallSource []byte

const (
	stallLibrary = "/usr/local/lib/ashlar-stall.so"
	stallSwitch  = "/tmp/stall"
)

// buildStall compiles the library that stands between the server and its disk.
var buildStall = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "ashlar-stall-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // of the system's temporary folder
	out := filepath.Join(dir, "stall.so")
	cc := exec.Command(cmp.Or(os.Getenv("CC"), "gcc"), "-O2", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-o", out, "-")
	cc.Stdin = bytes.NewReader(stallSource)
	if text, err := cc.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("a C compiler is needed (make cc): %w\n%s", err, text)
	}
	return os.ReadFile(out)
})

// StartPostgresStallingDisk starts such a server for this test alone. args are passed to it.
func StartPostgresStallingDisk(t testing.TB, args ...string) *StallingDisk {
	t.Helper()
	library, err := buildStall()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	s := postgresSpec(args...)
	s.files = []testcontainers.ContainerFile{{Reader: bytes.NewReader(library), ContainerFilePath: stallLibrary, FileMode: 0o755}}
	s.env["LD_PRELOAD"] = stallLibrary
	c := start(t, s)
	return &StallingDisk{&PostgresServer{Container: c, URL: postgresURL(c.Addr)}}
}

// Stall stalls the disk until Flow is called.
func (d *StallingDisk) Stall(t testing.TB) {
	t.Helper()
	d.Exec(t, "touch", stallSwitch)
}

// Flow ends a Stall.
func (d *StallingDisk) Flow(t testing.TB) {
	t.Helper()
	d.Exec(t, "rm", stallSwitch)
}

// AwaitStalled waits until at least one session of the server waits for the stalled disk.
func (d *StallingDisk) AwaitStalled(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
			t.Fatalf("testenv: nobody waits for the disk: %v", err)
		case <-tick.C:
		}
	}
}
