package dynamodb_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A transaction is held up on its way and sent again. The second attempt is refused by a check that something is absent. Then it is
// absent again, and the first attempt arrives: what was reported as refused must not happen.
func TestCommitRefusedThenLate(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	other := handle(t, s)
	transport := &http.Transport{ResponseHeaderTimeout: time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	b := handleThrough(t, s, func(o *awsdynamodb.Options) { o.HTTPClient = &http.Client{Transport: transport} })
	res := fixture.Write(t, b, box("b", nil))
	blocker := box("a", nil)
	var attempts atomic.Int64
	late, applied := make(chan struct{}), make(chan struct{})
	s.SetGate(func(op string) {
		if op != "TransactWriteItems" {
			return
		}
		switch attempts.Add(1) {
		case 1:
			<-late
			close(applied)
		case 2:
			blocker = fixture.Write(t, other, blocker)
		}
	})
	_, err := b.Commit(t.Context(), []storage.Op{{Check: box("a", nil).GetId()}, {Write: res}})
	fixture.Remove(t, other, blocker)
	close(late)
	<-applied
	fixture.Write(t, handle(t, s, func(o *dynamodb.Options) { o.Prefix = "another" }), box("a", nil)) // comes after it
	now, readErr := b.Read(t.Context(), storage.StrongConsistency, res.GetId())
	if readErr != nil {
		t.Fatal(readErr)
	}
	if now.GetVersion() != res.GetVersion() && !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("Commit answered %v, and wrote", err)
	}
}
