//go:build integration

package dynamodb_test

import (
	"strings"
	"testing"

	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/torture"
)

// TestTorture disturbs the connections to AWS's emulator, and pauses it.
func TestTorture(t *testing.T) { torture.Run(t, "dynamodb", tortureEmulator) }

func tortureEmulator(t *testing.T, o faults.Options) {
	server := env.StartDynamoDB(t)
	h := torture.ProxyHarness(t, server.StoreURL(t, "poll=10ms", "idle-poll=200ms"), strings.TrimPrefix(server.Endpoint, "http://"),
		// Requests contain key names in encoded form, but the operation in plain text.
		"DynamoDB_20120810.TransactWriteItems", "DynamoDB_20120810.PutItem", "DynamoDB_20120810.UpdateItem", "DynamoDB_20120810.DeleteItem", "DynamoDB_20120810.GetItem")
	skew := skewed(&h)
	h.Faults = append(h.Faults, torture.Lasting(faults.Pause, 2, func() { server.Freeze(t) }, func() { server.Wake(t) }), skew)
	torture.Exempt(&h, "the emulator keeps its data in memory", faults.KillServer, faults.Restart, faults.CrashSession, faults.StallDisk, faults.FillDisk)
	torture.Exempt(&h, "the emulator is one process", faults.StandbyAway, faults.QuorumAway, faults.ChangeLeader)
	torture.Exempt(&h, "a stream is kept for a day", faults.Compact)
	exemptDynamoDB(&h)
	faults.Test(t, h, o)
}
