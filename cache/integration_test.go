//go:build integration

package cache_test

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage/conformance/faults"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/torture"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) {
	if !faults.ServeProcess() {
		env.Main(m)
	}
}

func TestConformanceOverPostgres(t *testing.T) {
	server := env.Postgres(t)
	runCopyTopics(t, layered(func(t testing.TB) string { return server.StoreURL(t) }))
}

func TestConformanceOverEtcd(t *testing.T) {
	server := env.Etcd(t)
	runCopyTopics(t, layered(func(t testing.TB) string { return server.StoreURL(t) }))
}

func TestConformanceOverDynamoDB(t *testing.T) {
	server := env.DynamoDB(t)
	h := layered(func(t testing.TB) string { return server.StoreURL(t, "poll=10ms", "idle-poll=200ms", "timeout=2m") })
	h.Slow = true
	h.ListIsNoSnapshot = "DynamoDB reads partitions and pages at different times"
	h.NoOrderAcrossKeys = "a stream orders records only within a shard"
	h.NoBookmarker = "the shards of a stream do not report their lag behind the table"
	h.NoHistorian = "DynamoDB has no revisions across keys and keeps no old versions"
	h.NoCommitBounds = "the records of one transaction arrive through several shards"
	runCopyTopics(t, h)
}

// TestTortureOverPostgres cuts connections, kills processes, and crashes and stops the server.
func TestTortureOverPostgres(t *testing.T) {
	torture.Run(t, "cache over postgres", tortureOverPostgres)
}

func tortureOverPostgres(t *testing.T, o faults.Options) {
	server := env.StartInterceptedPostgres(t)
	h := torture.Proxied(t, "cached-"+server.StoreURL(t), server.Addr)
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
