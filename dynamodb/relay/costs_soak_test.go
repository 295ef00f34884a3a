//go:build soak

package relay_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestFanOutCosts logs the table of fan-out costs in the README: the requests of watching handles in a minute, with the default parameters, as
// the server counts them.
func TestFanOutCosts(t *testing.T) {
	rows := make(chan string, 8)
	t.Run("all", func(t *testing.T) {
		for _, writing := range []bool{false, true} {
			for _, relays := range []bool{false, true} {
				for _, handles := range []int{1, 10} {
					t.Run(fmt.Sprintf("%d handles, relays %v, writes %v", handles, relays, writing), func(t *testing.T) {
						t.Parallel()
						rows <- measureRequests(t, handles, relays, writing)
					})
				}
			}
		}
	})
	close(rows)
	var sorted []string
	for row := range rows {
		sorted = append(sorted, row)
	}
	slices.Sort(sorted)
	t.Log("\n" + strings.Join(sorted, "\n"))
}

// measureRequests returns a row of the table. Two more handles are the relays, or the writer is one more.
func measureRequests(t *testing.T, handles int, relays, writing bool) string {
	const shards = 4
	s := dynamofake.New(t)
	s.SetShards(shards)
	openWith := func(params string) *dynamodb.Backend {
		u, err := url.Parse(s.URL() + params)
		if err != nil {
			t.Fatal(err)
		}
		b, err := dynamodb.Open(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	params, kind := "", "direct"
	if relays {
		params, kind = "&watch=relay", "two relays"
		openWith(params + relayParams)
		openWith(params + relayParams)
	}
	for range handles {
		fixture.WatchChanges(t, openWith(params))
	}
	if relays {
		publishedRelays(t, openDirectory(t, s), 2)
	}
	stop := make(chan struct{})
	if writing {
		writer := openWith("")
		for i := range 10 {
			go func() {
				res := box(fmt.Sprint(i), make([]byte, 700))
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
					}
					stored, err := writer.WriteCAS(fixture.Context(t), res)
					if err != nil {
						t.Error(err)
						return
					}
					res = stored
				}
			}()
		}
	}
	time.Sleep(10 * time.Second) //nolint:forbidigo // the proofs of the start have ended
	count := func(operations ...string) (n int) {
		for _, op := range operations {
			n += s.Calls(op)
		}
		return n
	}
	stream := func() (records, others int) { return count("GetRecords"), count("DescribeStream", "GetShardIterator") }
	read := func() int { return count("GetItem", "BatchGetItem", "Query", "TransactGetItems") }
	written := func() int { return count("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems") }
	records, others := stream()
	reads, writes := read(), written()
	const window = 60 * time.Second
	time.Sleep(window) //nolint:forbidigo // the costs of this time are measured
	recordsEnd, othersEnd := stream()
	readsEnd, writesEnd := read(), written()
	close(stop)
	activity := "idle"
	if writing {
		activity = "ten writes a second"
	}
	return fmt.Sprintf("| %s | %s | %3d | %d | %d | %d | %d |", activity, kind, handles, recordsEnd-records, othersEnd-others, readsEnd-reads, writesEnd-writes)
}
