//go:build integration

package postgres

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestCommitIsGivenOutBeforeItIsShown holds a transaction at the moment when it passes its changes to the feed, which may publish
// them at once. A replica without them must not answer any more by then.
func TestCommitIsGivenOutBeforeItIsShown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	u, err := url.Parse(server.StoreURL(t, "replica="+url.QueryEscape(server.URL)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(ctx, u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	in := b.handle.source.inbox.open() // no feed runs
	answers := func() uint64 { _, _, given := b.handle.source.replica.requiredPosition(); return given }
	before := answers()
	done := make(chan error, 1)
	in.mu.Lock()
	go func() {
		_, err := b.Commit(ctx, []storage.Op{{Write: &resourcepb.Resource{Id: &resourcepb.ID{
			Uid: "uid", Name: "name", Type: &resourcepb.Type{Group: "g", GroupVersion: "v1", Kind: "Kind"},
			Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "n"},
		}}}})
		done <- err
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for answers() == before && ctx.Err() == nil {
		<-tick.C
	}
	if ctx.Err() != nil {
		t.Error("the feed has the changes, and a replica without them may still answer")
	}
	in.mu.Unlock()
	if err := <-done; err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}
