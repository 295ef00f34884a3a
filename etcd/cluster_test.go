//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestLeaderKilled takes the leader's power away under load.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	cluster := env.StartEtcdCluster(t)
	b := open(t, cluster.StoreURL(t))
	w := fixture.WatchChanges(t, b)
	l := newLoad(t, b, 6, 3)
	l.progress(t, 50)
	leader := cluster.Leader(t)
	leader.Kill(t)
	l.progress(t, 50)
	leader.Start(t)
	l.progress(t, 50)
	l.finish(t, b, w)
}

// TestRollingRestart restarts every member in turn, as an upgrade does, under load.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	cluster := env.StartEtcdCluster(t)
	b := open(t, cluster.StoreURL(t))
	w := fixture.WatchChanges(t, b)
	l := newLoad(t, b, 6, 3)
	for _, m := range cluster.Members {
		l.progress(t, 50)
		m.Restart(t)
	}
	l.progress(t, 50)
	l.finish(t, b, w)
}

// TestAllPaused freezes the whole cluster for a while, under load.
func TestAllPaused(t *testing.T) {
	t.Parallel()
	cluster := env.StartEtcdCluster(t)
	b := open(t, cluster.StoreURL(t))
	w := fixture.WatchChanges(t, b)
	l := newLoad(t, b, 6, 3)
	l.progress(t, 50)
	for _, m := range cluster.Members {
		m.Pause(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for _, consistency := range []storage.ReadConsistency{storage.StrongConsistency, storage.EventualConsistency} {
		_, err := b.Read(ctx, consistency, service("a").Id)
		if !errors.Is(err, storage.ErrInconsistent) && !errors.Is(err, ctx.Err()) {
			t.Errorf("%v read while nobody answers: %v", consistency, err)
		}
	}
	for _, m := range cluster.Members {
		m.Unpause(t)
	}
	l.progress(t, 50)
	l.finish(t, b, w)
}

// TestFollowerPartitioned cuts a follower off the others. Its clients must not read old data strongly, nor go back in time, and
// their watches lose nothing and take nothing that the member says for proof of how far they are.
func TestFollowerPartitioned(t *testing.T) {
	t.Parallel()
	cluster := env.StartEtcdCluster(t)
	prefix := cluster.Prefix(t)
	all := open(t, cluster.StoreURLIn(t, prefix))
	leader := cluster.Leader(t)
	follower := cluster.Members[0]
	if follower == leader {
		follower = cluster.Members[1]
	}
	behind := open(t, follower.StoreURLIn(t, prefix))
	both := open(t, through(follower.StoreURLIn(t, prefix), follower.Endpoint, follower.Endpoint+","+leader.Endpoint))
	everybody, watched, asked := fixture.WatchChanges(t, all), fixture.WatchChanges(t, behind), fixture.WatchChanges(t, behind)

	l := newLoad(t, all, 4, 2)
	first := fixture.Write(t, all, service("a"))
	if got := fixture.Stored(t, behind, first.Id); got.GetVersion() != first.Version {
		t.Fatalf("the follower has %v, want version %s", got, first.Version)
	}
	l.progress(t, 50)
	follower.Disconnect(t)
	second := fixture.Write(t, all, at(first, first.Version))
	ask(t, asked)

	// The client of the follower alone: nothing rather than something old.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var calls sync.WaitGroup
	calls.Go(func() {
		got, err := behind.Read(ctx, storage.StrongConsistency, first.Id)
		if !errors.Is(err, storage.ErrInconsistent) {
			t.Errorf("strong read from a member that is cut off: %v, %v; want ErrInconsistent", got, err)
		}
	})
	calls.Go(func() {
		list, err := behind.List(ctx, storage.StrongConsistency, serviceType, tenancy, "")
		if !errors.Is(err, storage.ErrInconsistent) {
			t.Errorf("strong list from a member that is cut off: %v, %v; want ErrInconsistent", list, err)
		}
	})
	calls.Go(func() {
		for {
			ev, err := asked.Next(ctx)
			if err != nil {
				return
			}
			if ev.GetBookmark() != nil {
				t.Error("a bookmark from a member that is cut off")
			}
		}
	})
	calls.Wait()
	if got, err := behind.Read(fixture.Context(t), storage.EventualConsistency, first.Id); err != nil || got.Version != first.Version {
		t.Errorf("eventual read from a member that is cut off: %v, %v; want the old version", got, err)
	}

	// The client of both members never goes back, whichever it asks.
	got, err := both.Read(fixture.Context(t), storage.StrongConsistency, first.Id)
	if err != nil || got.Version != second.Version {
		t.Errorf("strong read: %v, %v; want version %s", got, err, second.Version)
	}
	for range 6 {
		got, err := both.Read(fixture.Context(t), storage.EventualConsistency, first.Id)
		if err != nil || got.Version != second.Version {
			t.Fatalf("eventual read after a newer one: %v, %v; want version %s", got, err, second.Version)
		}
		list, err := both.List(fixture.Context(t), storage.EventualConsistency, serviceType, tenancy, "a")
		if err != nil || len(list) != 1 || list[0].Version != second.Version {
			t.Fatalf("eventual list after a newer read: %v, %v; want version %s", list, err, second.Version)
		}
	}

	l.progress(t, 50)
	follower.Reconnect(t)
	follower.Await(t)
	for {
		ev, err := watched.Next(fixture.Context(t))
		if err != nil {
			t.Fatalf("the watch at the member that was cut off: %v", err)
		}
		if what(ev) == upserted(second) {
			break
		}
	}
	for ctx, seen := fixture.Context(t), false; ; {
		ev, err := asked.Next(ctx)
		if err != nil {
			t.Fatalf("the watch that was asked for a bookmark: %v", err)
		}
		seen = seen || what(ev) == upserted(second)
		if ev.GetBookmark() != nil {
			if !seen {
				t.Error("a bookmark before what had been written when it was asked for")
			}
			break
		}
	}
	l.finish(t, all, everybody)
}
