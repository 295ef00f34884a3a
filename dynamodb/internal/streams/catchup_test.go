package streams

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// A read of history that begins at a time skips all earlier records without a pause after each page. Pauses are for empty answers.
func TestPagesFromBeforeATimeAreSkippedAtOnce(t *testing.T) {
	t.Parallel()
	old := `{"Records":[{"dynamodb":{"SequenceNumber":"100","ApproximateCreationDateTime":1000}}],"NextShardIterator":"next"}`
	for answer, pauses := range map[string]bool{old: false, `{"Records":[],"NextShardIterator":"next"}`: true} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader(answer)) // the reader may have disconnected
		}))
		t.Cleanup(server.Close)
		client := dynamodbstreams.New(dynamodbstreams.Options{
			Region: "r", BaseEndpoint: aws.String(server.URL), HTTPClient: server.Client(),
			Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
		})
		s := &shards{Config: &Config{Client: client, Table: largeEvents(1), Timeout: time.Minute, Clock: request.NewClock(), Poll: time.Hour}}
		pl := shardPosition{"s", since(time.Unix(2000, 0))}
		c := &backlogReader{
			shards: s, at: &Position{shards: []shardPosition{pl}, asOf: s.Clock.Now()}, filter: &key.Filter{},
			iterators: map[string]string{"s": "first"}, empty: 1 << 20,
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		if pauses { // which it does for an hour
			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		}
		err := c.step(ctx, pl)
		cancel()
		if (err != nil) != pauses {
			t.Errorf("after %s: %v", answer, err)
		}
	}
}

// History leads from a shard that was read to its end to its grandchild, whose beginning the reader has reached. The child between them
// must be read.
func TestHistoryReadsEachGeneration(t *testing.T) {
	t.Parallel()
	tr := newTree()
	tr.update(map[string]string{"a": "", "b": "a", "c": "b"}, &Position{})
	c := &backlogReader{
		shards: &shards{tree: tr}, at: &Position{shards: []shardPosition{{"a", shardEnd}}},
		target: &Position{shards: []shardPosition{{"c", ""}}},
	}
	if c.isComplete() {
		t.Error("history ends before the child is read")
	}
	c.at = &Position{shards: []shardPosition{{"b", shardEnd}, {"c", ""}}}
	if !c.isComplete() {
		t.Error("history does not end where the reader begins")
	}
}

// A shard was split, and the relay's first listing lacked one of the new shards. The relay reads that shard from its beginning later, so the
// history before the relay's start has no changes of it.
func TestHistoryEndsBeforeAnOmittedShard(t *testing.T) {
	t.Parallel()
	tr := newTree()
	tr.update(map[string]string{"a": "", "b": "a", "c": "a", "d": "c", "x": ""}, &Position{})
	for _, c := range []struct {
		at   *Position
		want bool
	}{
		{at(shardPosition{"a", shardEnd}, shardPosition{"b", "7"}, shardPosition{"c", ""}), true},
		{at(shardPosition{"a", shardEnd}, shardPosition{"b", "7"}, shardPosition{"c", shardEnd}, shardPosition{"d", "1"}), true},
		{at(shardPosition{"a", shardEnd}, shardPosition{"b", "6"}, shardPosition{"c", ""}), false},
		{at(shardPosition{"a", shardEnd}, shardPosition{"b", "7"}, shardPosition{"x", "1"}), false},
	} {
		r := &backlogReader{shards: &shards{tree: tr}, at: c.at, target: at(shardPosition{"b", "7"})}
		if got := r.isComplete(); got != c.want {
			t.Errorf("%v: complete %v, expected %v", c.at, got, c.want)
		}
	}
}
