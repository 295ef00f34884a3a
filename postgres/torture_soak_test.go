//go:build integration && soak

package postgres_test

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/torture"
)

// TestTortureSynchronous makes a primary lose its synchronous standby.
func TestTortureSynchronous(t *testing.T) {
	torture.Run(t, "postgres with a standby", tortureSynchronous)
}

func tortureSynchronous(t *testing.T, o faults.Options) {
	pair := env.StartPostgresPair(t)
	pair.Synchronous(t, "on")
	h := torture.Proxied(t, pair.Primary.StoreURL(t), pair.Primary.Addr)
	h.Faults = append(h.Faults,
		torture.Once(faults.CrashSession, 2, func() { crashSession(t, pair.Primary) }),
		torture.Long(torture.Lasting(faults.StandbyAway, 3, func() { pair.Standby.Freeze(t) }, func() { pair.Standby.Wake(t) })),
		torture.Lasting(faults.Pause, 1, func() { pair.Primary.Freeze(t) }, func() { pair.Primary.Wake(t) }),
	)
	torture.Exempt(&h, "TestTorture does it", faults.Restart, faults.KillServer, faults.StallDisk, faults.FillDisk)
	torture.Exempt(&h, "the standby is not promoted", faults.QuorumAway, faults.ChangeLeader)
	torture.Exempt(&h, "TestTorture does it", faults.SkewClock)
	torture.Exempt(&h, "TestTorture does it", faults.Compact)
	faults.Test(t, h, o)
}

// TestTortureFullDisk fills the disk while connections break. Its server has little space, so the run is short.
func TestTortureFullDisk(t *testing.T) { torture.Run(t, "postgres with a small disk", tortureFullDisk) }

func tortureFullDisk(t *testing.T, o faults.Options) {
	server := env.StartPostgresSmallDisk(t, 96)
	h := torture.Proxied(t, server.StoreURL(t), server.Addr)
	h.MaxSize = 32 << 10
	h.Faults = append(h.Faults, torture.Lasting(faults.FillDisk, 8, func() { server.Fill(t, 0) }, func() { server.Free(t) }))
	torture.Exempt(&h, "TestTorture does it", faults.Pause, faults.CrashSession, faults.Restart, faults.KillServer, faults.StallDisk)
	torture.Exempt(&h, "a lone server has no peer to lose", faults.StandbyAway, faults.QuorumAway, faults.ChangeLeader)
	torture.Exempt(&h, "TestTorture does it", faults.SkewClock)
	torture.Exempt(&h, "TestTorture does it", faults.Compact)
	o.For = min(o.For, time.Minute)
	faults.Test(t, h, o)
}
