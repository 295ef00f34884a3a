//go:build integration && soak

package controllers

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage/conformance/faults"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/torture"
)

func TestFaultsEtcd(t *testing.T) {
	t.Parallel()
	cluster := env.StartEtcdCluster(t)
	first := cluster.Members[0]
	const path = "/faults"
	tr := proxied(t, "etcd://"+first.Endpoint+path, first.Endpoint, "Report", "Mark", "Lock")
	tr.url = "etcd://" + cluster.Endpoint + path
	onMember := func(kind faults.Kind, begin, end func(*env.EtcdMember)) {
		tr.faults = append(tr.faults, faults.Fault{Kind: kind, Weight: 3, Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
			member := cluster.Members[random.IntN(len(cluster.Members))]
			begin(member)
			return func(context.Context) error { end(member); return nil }, nil
		}})
	}
	onMember(faults.KillServer, func(m *env.EtcdMember) { m.Kill(t) }, func(m *env.EtcdMember) { m.Start(t) })
	onMember(faults.Pause, func(m *env.EtcdMember) { m.Freeze(t) }, func(m *env.EtcdMember) { m.Wake(t) })
	tr.run(t)
}

// TestFaultsDynamoDB does not kill the emulator, which keeps its data in memory, and there is no history to discard.
func TestFaultsDynamoDB(t *testing.T) {
	t.Parallel()
	server := env.StartDynamoDB(t)
	tr := proxied(t, server.StoreURL(t, "poll=10ms", "idle-poll=200ms"), strings.TrimPrefix(server.Endpoint, "http://"),
		"DynamoDB_20120810.TransactWriteItems", "DynamoDB_20120810.PutItem", "DynamoDB_20120810.UpdateItem")
	tr.isUnordered = true
	tr.faults = append(tr.faults, torture.Lasting(faults.Pause, 3, func() { server.Freeze(t) }, func() { server.Wake(t) }))
	tr.run(t)
}
