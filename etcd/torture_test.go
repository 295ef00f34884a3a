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

// A cluster of three members loses members, its leader and its quorum under load. Some handles connect to one member through a proxy, others
// to all members without it.
func TestTorture(t *testing.T) { torture.Run(t, "etcd", tortureCluster) }

func tortureCluster(t *testing.T, o faults.Options) {
	cluster := env.StartEtcdCluster(t)
	first := cluster.Members[0]
	path := "/torture"
	h := torture.ProxyHarness(t, "etcd://"+first.Endpoint+path, first.Endpoint)
	h.Around = torture.Opener("etcd://" + cluster.Endpoint + path)
	randomMember := func(random *rand.Rand) *env.EtcdMember { return cluster.Members[random.IntN(len(cluster.Members))] }
	on := func(kind faults.Kind, weight int, inject func(random *rand.Rand) func()) faults.Fault {
		return faults.Fault{Kind: kind, Weight: weight, Touches: "server", Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
			heal := inject(random)
			return func(context.Context) error { heal(); return nil }, nil
		}}
	}
	h.Faults = append(h.Faults,
		on(faults.Pause, 2, func(random *rand.Rand) func() {
			m := randomMember(random)
			m.Freeze(t)
			return func() { m.Wake(t) }
		}),
		on(faults.KillServer, 1, func(random *rand.Rand) func() {
			m := randomMember(random)
			m.Kill(t)
			return func() { m.Start(t) }
		}),
		on(faults.Restart, 1, func(random *rand.Rand) func() {
			m := randomMember(random)
			m.Stop(t)
			return func() { m.Start(t) }
		}),
		on(faults.QuorumAway, 1, func(random *rand.Rand) func() {
			frozen := random.Perm(len(cluster.Members))[:2]
			for _, i := range frozen {
				cluster.Members[i].Freeze(t)
			}
			return func() {
				for _, i := range frozen {
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
		torture.Compact(func(ctx context.Context) error { return compactCluster(ctx, cluster.Endpoint) }),
	)
	torture.Exempt(&h, "a member is one process; KillServer kills it", faults.CrashSession)
	torture.Exempt(&h, "the disks of the members are the host's", faults.StallDisk)
	torture.Exempt(&h, "TestNoSpace exhausts the quota; only an operator can disarm the alarm", faults.FillDisk)
	torture.Exempt(&h, "etcd has members instead", faults.StandbyAway)
	torture.Exempt(&h, "the time of day affects only when a handle reads a newer revision", faults.SkewClock)
	faults.Test(t, h, o)
}

// compactCluster compacts a cluster up to the current revision. It retries, because a fault may just have ended.
func compactCluster(ctx context.Context, endpoints string) error {
	// A new client, closed at the end, because the suite would count its goroutines as the backend's.
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
