//go:build integration

package cache_test

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/torture"
)

// TestTortureOverPostgres cuts connections, kills processes, and crashes and stops the server.
func TestTortureOverPostgres(t *testing.T) {
	torture.Run(t, "cache over postgres", tortureOverPostgres)
}

func tortureOverPostgres(t *testing.T, o faults.Options) {
	server := env.StartInterceptedPostgres(t)
	h := torture.ProxyHarness(t, "cached-"+server.StoreURL(t), server.Addr)
	h.Faults = append(h.Faults,
		torture.Once(faults.Restart, 1, func() { server.Restart(t) }),
		torture.Once(faults.KillServer, 1, func() { server.Kill(t); server.Start(t) }),
		torture.Lasting(faults.Pause, 1, func() { server.Freeze(t) }, func() { server.Wake(t) }),
	)
	torture.Exempt(&h, "a single server has no peers to lose", faults.StandbyAway, faults.QuorumAway, faults.ChangeLeader)
	torture.Exempt(&h, "the adapter's test covers it, and the cache sees no difference from the other faults",
		faults.FillDisk, faults.StallDisk, faults.SkewClock, faults.CrashSession)
	torture.Exempt(&h, "covered by TestTortureOverSQLite", faults.Compact)
	o.Calm = max(o.Calm, 2*time.Second)
	faults.Test(t, h, o)
}
