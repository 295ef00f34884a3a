//go:build integration && soak

package controllers

import (
	"testing"

	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/torture"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) {
	serveProcess()
	env.Main(m)
}

// proxied returns a trial on a store at a URL, whose processes connect to the server through a proxy with faults.
func proxied(t *testing.T, storeURL, addr string, patterns ...string) trial {
	t.Helper()
	link, through := torture.StartProxy(t, storeURL, addr)
	return trial{url: storeURL, processURL: through, faults: faults.Connection(link, patterns...)}
}

func TestFaultsPostgres(t *testing.T) {
	t.Parallel()
	server := env.StartPostgres(t)
	tr := proxied(t, server.StoreURL(t), server.Addr, "Report", "Mark", "Lock")
	tr.faults = append(tr.faults,
		torture.Once(faults.KillServer, 3, func() { server.Kill(t); server.Start(t) }),
		torture.Lasting(faults.Pause, 3, func() { server.Freeze(t) }, func() { server.Wake(t) }),
	)
	tr.run(t)
}
