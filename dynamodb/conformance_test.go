//go:build integration

package dynamodb_test

import (
	"sync"
	"testing"

	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
	_ "github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestMain(m *testing.M) {
	if !faults.ServeProcess() {
		env.Main(m)
	}
}

// TestConformance runs the suite on AWS's emulator, with one table and a prefix for each store.
func TestConformance(t *testing.T) {
	var prefixes sync.Map // by URL
	conformance.Run(t, conformance.Harness{
		URL: func(t testing.TB) string {
			server := env.DynamoDB(t)
			prefix := server.Prefix(t)
			url := server.StoreURLIn(t, prefix, "poll=10ms", "idle-poll=200ms")
			prefixes.Store(url, prefix)
			return url
		},
		Processes: true,
		Replace: func(t testing.TB, storeURL string, id *resourcepb.ID, data []byte) {
			prefix, _ := prefixes.Load(storeURL)
			replaceData(t, env.DynamoDB(t), prefix.(string), id, data)
		},
		NoBulk: "a query has no faster form, and the database writes no faster in bulk under a condition",
		// All cases share the emulator, which handles some hundred writes a second in total.
		Slow:              true,
		ListIsNoSnapshot:  "DynamoDB reads different partitions, and different pages, at different moments",
		NoOrderAcrossKeys: "each shard of a stream has an order of its own",
		NoBookmarker:      "a shard of a stream does not report its lag behind the table",
		NoHistorian:       "DynamoDB has no numbers across keys, and keeps no versions",
		NoCommitBounds:    "the records of one transaction arrive through several shards",
	})
}
