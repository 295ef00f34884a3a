//go:build integration

package stores

import (
	"testing"

	"github.com/ashlar-dev/storage/conformance"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
)

func init() {
	run = env.Main
	All["Postgres"] = conformance.Harness{
		URL:  func(t testing.TB) string { return env.Postgres(t).StoreURL(t) },
		Slow: true, Processes: true,
	}
	All["Etcd"] = conformance.Harness{
		URL:  func(t testing.TB) string { return env.Etcd(t).StoreURL(t) },
		Slow: true, Processes: true,
	}
	All["DynamoDB"] = conformance.Harness{
		URL: func(t testing.TB) string {
			return env.DynamoDB(t).StoreURL(t, "poll=10ms", "idle-poll=200ms", "timeout=2m")
		},
		Slow: true, Processes: true,
		ListIsNoSnapshot:  "DynamoDB reads different partitions, and different pages, at different moments",
		NoOrderAcrossKeys: "each shard of a stream has an order of its own",
		NoBookmarker:      "a shard of a stream does not report its lag behind the table",
		NoHistorian:       "DynamoDB has no numbers across keys, and keeps no versions",
		NoCommitBounds:    "the records of one transaction arrive through several shards",
	}
}
