//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/torture"
)

// TestTorture has a cluster of three lose members, its leader and its quorum. Handles reach one member through a proxy, and all of
// them around it.
func TestTorture(t *testing.T) { torture.Run(t, "etcd", tortureCluster) }

func tortureCluster(t *testing.T, o faults.Options) {
	cluster := env.StartEtcdCluster(t)
	first := cluster.Members[0]
	path := "/torture"
	h := torture.Proxied(t, "etcd://"+first.Endpoint+path, first.Endpoint)
	h.Around = torture.Opener("etcd://" + cluster.Endpoint + path)
	any := func(random *rand.Rand) *env.EtcdMember { return cluster.Members[random.IntN(len(cluster.Members))] }
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
		torture.Compact(func(ctx context.Context) error { return forget(ctx, cluster.Endpoint) }),
	)
	torture.Exempt(&h, "a member is one process, which is killed as a whole", faults.CrashSession)
	torture.Exempt(&h, "the disks of the members are the host's", faults.StallDisk)
	torture.Exempt(&h, "TestNoSpace exhausts the quota, which takes an operator to mend", faults.FillDisk)
	torture.Exempt(&h, "etcd has members instead", faults.StandbyAway)
	torture.Exempt(&h, "the time of day decides nothing but when a handle asks for a newer revision", faults.SkewClock)
	faults.Test(t, h, o)
}

// forget compacts a cluster's history up to now, as soon as the cluster can: a fault may just have ended.
func forget(ctx context.Context, endpoints string) error {
	// A client of its own: what one leaves running would be taken for the backend's.
	c, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(endpoints, ","), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	defer c.Close()
	for {
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		resp, err := c.Get(attempt, "x")
		if err == nil {
			_, err = c.Compact(attempt, resp.Header.Revision)
		}
		cancel()
		if err == nil || errors.Is(err, rpctypes.ErrCompacted) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("compact etcd: %w", err)
		}
	}
}
