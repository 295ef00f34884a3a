//go:build soak

package relay_test

import (
	"testing"

	"github.com/ashlar-dev/storage/conformance"
)

// TestConformance runs the suite with handles whose watches receive the changes from a relay.
func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{
		URL: func(t testing.TB) string {
			address := startFake(t) + "&poll=5ms&idle-poll=50ms&fence-wait=300ms&watch=relay&relay-ttl=2s"
			startProcess(t, "candidate", address+relayParams, 0)
			return address
		},
		Processes:         true,
		NoBulk:            "a query has no faster form, and the database writes no faster in bulk under a condition",
		ListIsNoSnapshot:  "DynamoDB reads different partitions, and different pages, at different moments",
		NoOrderAcrossKeys: "each shard of a stream has an order of its own",
		NoBookmarker:      "a shard of a stream does not report its lag behind the table",
		NoHistorian:       "DynamoDB has no numbers across keys, and keeps no versions",
		NoCommitBounds:    "the records of one transaction arrive through several shards",
	})
}
