//go:build integration

package etcd_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/internal/torture"
)

// TestTorture has a cluster of three lose members, its leader and its quorum. Handles reach one member through a proxy, and all of
// them around it.
func TestTorture(t *testing.T) {
	cluster := testenv.StartEtcdCluster(t)
	first := cluster.Members[0]
	path := "/torture"
	h := torture.Behind(t, "etcd://"+first.Endpoint+path, first.Endpoint)
	h.Around = torture.Opener("etcd://" + cluster.Endpoint + path)
	any := func(random *rand.Rand) *testenv.EtcdMember { return cluster.Members[random.IntN(len(cluster.Members))] }
	on := func(kind faults.Kind, weight int, inject func(random *rand.Rand) func()) faults.Fault {
		return faults.Fault{Kind: kind, Weight: weight, Touches: "server", Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
			heal := inject(random)
			return func(context.Context) error { heal(); return nil }, nil
		}}
	}
	h.Faults = append(h.Faults,
		on(faults.Pause, 2, func(random *rand.Rand) func() {
			m := any(random)
			m.Freeze(t)
			return func() { m.Wake(t) }
		}),
		on(faults.KillServer, 1, func(random *rand.Rand) func() {
			m := any(random)
			m.Kill(t)
			return func() { m.Start(t) }
		}),
		on(faults.Restart, 1, func(random *rand.Rand) func() {
			m := any(random)
			m.Stop(t)
			return func() { m.Start(t) }
		}),
		on(faults.QuorumAway, 1, func(random *rand.Rand) func() {
			gone := random.Perm(len(cluster.Members))[:2]
			for _, i := range gone {
				cluster.Members[i].Freeze(t)
			}
			return func() {
				for _, i := range gone {
					cluster.Members[i].Wake(t)
				}
			}
		}),
		on(faults.ChangeLeader, 1, func(*rand.Rand) func() {
			leader := cluster.Leader(t)
			leader.Disconnect(t)
			return func() {
				leader.Reconnect(t)
				leader.Await(t)
			}
		}),
	)
	torture.Exempt(&h, "a member is one process, which is killed as a whole", faults.CrashSession)
	torture.Exempt(&h, "the disks of the members are the host's", faults.StallDisk)
	torture.Exempt(&h, "TestNoSpace exhausts the quota, which takes an operator to mend", faults.FillDisk)
	torture.Exempt(&h, "etcd has members instead", faults.StandbyAway)
	torture.Exempt(&h, "the time of day decides nothing but when a handle asks for a newer revision", faults.SkewClock)
	torture.Exempt(&h, "TestCompactionWhileDisconnected and its neighbours do it", faults.Compact)
	faults.Test(t, h, torture.Options(t))
}
