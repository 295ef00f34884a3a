//go:build integration

package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestStrangersLockUnderLoad runs more transactions than the pool has connections that wait for a row locked by a foreign session,
// while others read and write. Those continue, and their events arrive.
func TestStrangersLockUnderLoad(t *testing.T) {
	t.Parallel()
	for _, commits := range []int{8, 40} {
		t.Run(fmt.Sprint(commits), func(t *testing.T) {
			t.Parallel()
			strangersLock(t, commits)
		})
	}
}

func strangersLock(t *testing.T, commits int) {
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	b, other := fixture.Open(t, storeURL), fixture.Open(t, storeURL)
	held := fixture.Write(t, b, fixture.Resource("held", startOver))
	here, elsewhere := fixture.WatchAll(t, b), fixture.WatchAll(t, other)
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	lock := lockRow(t, server, schema, held.Id)

	// They wait as long as the row is locked, which is until everything else has finished.
	waiting, cancel := context.WithTimeout(context.Background(), time.Hour)
	t.Cleanup(cancel)
	transactor, _ := storage.As[storage.Transactor](b)
	answers := make(chan error, commits)
	for i := range commits {
		group.Go(func() {
			_, err := transactor.Commit(waiting, []storage.Op{{Write: fixture.Resource(fmt.Sprint("beside-", i), "v")}, {Write: held}})
			answers <- err
		})
	}
	// A call that takes longer than this is blocked, because each is quick.
	c := newChurn(t, 20)
	c.limit = fixture.Timeout
	followers := []*follower{follow(t, "watch", here), follow(t, "watch of another handle", elsewhere)}
	for i := range 32 {
		c.writer(b, uint64(i), 20)
	}
	for range 20 {
		for name, call := range calls(b, held) {
			if name == "delete" {
				continue // it belongs to the locked row
			}
			if err := call(fixture.Context(t)); err != nil {
				t.Errorf("beside %d transactions that wait for a row: %s: %v", commits, name, err)
			}
		}
		if t.Failed() {
			break
		}
	}
	c.group.Wait()
	if t.Failed() {
		_ = lock.Rollback(fixture.Context(t)) // the test has failed
		c.finish(b, followers...)
		return
	}
	c.finish(b, followers...)

	select {
	case err := <-answers:
		t.Errorf("a transaction was answered while its row was locked: %v", err)
	default:
	}
	if err := lock.Rollback(fixture.Context(t)); err != nil {
		t.Fatal(err)
	}
	done := 0
	for range commits {
		switch err := <-answers; {
		case err == nil:
			done++
		case !isCASFailure(err):
			t.Errorf("a transaction that waited for the row: %v", err)
		}
	}
	if done != 1 {
		t.Errorf("%d of %d transactions that replace one version succeeded", done, commits)
	}
}
