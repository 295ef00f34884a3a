//go:build integration

package dynamodb_test

import (
	"testing"

	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
	_ "github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/env"
)

func TestMain(m *testing.M) {
	if !faults.ServeProcess() {
		env.Main(m)
	}
}

// TestConformance runs the suite on AWS's emulator: one table, a prefix for each store.
func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{
		URL: func(t testing.TB) string { return env.DynamoDB(t).StoreURL(t, "poll=10ms", "idle-poll=200ms") },
		// Every case shares the emulator, which does some hundred writes a second for all of them.
		Slow:              true,
		ListIsNoSnapshot:  "DynamoDB reads no two partitions, and no two pages, at the same moment",
		NoOrderAcrossKeys: "each shard of a stream has an order of its own",
		NoBookmarker:      "shards of a stream do not say how far behind the table they are",
		NoHistorian:       "DynamoDB numbers nothing across keys, and keeps no versions",
		NoCommitBounds:    "the records of one transaction come by several shards",
	})
}
