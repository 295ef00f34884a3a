//go:build integration && soak

package postgres_test

import (
	"context"
	"math/rand/v2"
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
	h := torture.ProxyHarness(t, pair.Primary.StoreURL(t), pair.Primary.Addr)
	h.Faults = append(h.Faults,
		torture.Once(faults.CrashSession, 2, func() { crashSession(t, pair.Primary) }),
		torture.Long(torture.Lasting(faults.StandbyAway, 3, func() { pair.Standby.Freeze(t) }, func() { pair.Standby.Wake(t) })),
		torture.Lasting(faults.Pause, 1, func() { pair.Primary.Freeze(t) }, func() { pair.Primary.Wake(t) }),
	)
	torture.Exempt(&h, "TestTorture does it", faults.Restart, faults.KillServer, faults.StallDisk, faults.FillDisk)
	torture.Exempt(&h, "TestTortureFailover does it", faults.ChangeLeader)
	torture.Exempt(&h, "a pair has no quorum", faults.QuorumAway)
	torture.Exempt(&h, "TestTorture does it", faults.SkewClock)
	torture.Exempt(&h, "TestTorture does it", faults.Compact)
	faults.Test(t, h, o)
}

// TestTortureFailover promotes the synchronous standby again and again, behind a pooler.
func TestTortureFailover(t *testing.T) {
	torture.Run(t, "postgres with failovers", tortureFailover)
}

func tortureFailover(t *testing.T, o faults.Options) {
	pair := env.StartPostgresPair(t)
	pair.Synchronous(t, "on")
	pooler := env.StartPgBouncer(t, pair.Primary)
	through := *pair.Primary
	through.URL = pooler.URL
	h := torture.ProxyHarness(t, through.StoreURLIn(t, "store", "listen=off", "poll=50ms"), pooler.Addr) // dropped with the servers
	failOver := func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
		if random.IntN(2) == 0 {
			// A backend that detects the death of the first process cancels its wait for the standby, and others then show its commit.
			pair.Primary.Freeze(t)
			pair.Primary.Kill(t)
		} else {
			pair.Primary.Stop(t)
		}
		if random.IntN(2) == 0 {
			pooler.Switch(t, pair.Standby) // which is a standby for a moment
			pair.FailOver(t)
		} else {
			pair.FailOver(t)
			pooler.Switch(t, pair.Primary)
		}
		return func(context.Context) error { pair.Rejoin(t); return nil }, nil
	}
	h.Faults = append(h.Faults,
		faults.Fault{Kind: faults.ChangeLeader, Weight: 4, Touches: "server", Inject: failOver},
		torture.Once(faults.CrashSession, 1, func() { crashSession(t, pair.Primary) }),
		torture.Long(torture.Lasting(faults.StandbyAway, 1, func() { pair.Standby.Freeze(t) }, func() { pair.Standby.Wake(t) })),
		torture.Lasting(faults.Pause, 1, func() { pair.Primary.Freeze(t) }, func() { pair.Primary.Wake(t) }),
	)
	torture.Exempt(&h, "TestTorture does it", faults.Restart, faults.KillServer, faults.StallDisk, faults.SkewClock, faults.Compact)
	torture.Exempt(&h, "TestTortureFullDisk does it", faults.FillDisk)
	torture.Exempt(&h, "a pair has no quorum", faults.QuorumAway)
	faults.Test(t, h, o)
}

// TestTortureFullDisk fills the disk while connections break. Its server has little space, so the run is short.
func TestTortureFullDisk(t *testing.T) { torture.Run(t, "postgres with a small disk", tortureFullDisk) }

func tortureFullDisk(t *testing.T, o faults.Options) {
	server := env.StartPostgresSmallDisk(t, 96)
	h := torture.ProxyHarness(t, server.StoreURL(t), server.Addr)
	h.MaxSize = 32 << 10
	h.Faults = append(h.Faults, torture.Lasting(faults.FillDisk, 8, func() { server.Fill(t, 0) }, func() { server.Free(t) }))
	torture.Exempt(&h, "TestTorture does it", faults.Pause, faults.CrashSession, faults.Restart, faults.KillServer, faults.StallDisk)
	torture.Exempt(&h, "a lone server has no peer to lose", faults.StandbyAway, faults.QuorumAway, faults.ChangeLeader)
	torture.Exempt(&h, "TestTorture does it", faults.SkewClock)
	torture.Exempt(&h, "TestTorture does it", faults.Compact)
	o.For = min(o.For, time.Minute)
	faults.Test(t, h, o)
}
