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

// The leader is killed under load.
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

// All members restart in turn under load, as during an upgrade.
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

// The whole cluster is paused for some time under load.
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
			t.Errorf("%v read while all members are paused: %v", consistency, err)
		}
	}
	for _, m := range cluster.Members {
		m.Unpause(t)
	}
	l.progress(t, 50)
	l.finish(t, b, w)
}

// A follower is partitioned from the others. Its clients must not read stale data strongly, nor go back in time. Their watches lose no
// event and get no bookmark from it.
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
	allEvents, behindEvents, bookmarked := fixture.WatchChanges(t, all), fixture.WatchChanges(t, behind), fixture.WatchChanges(t, behind)

	l := newLoad(t, all, 4, 2)
	first := fixture.Write(t, all, service("a"))
	if got := fixture.Stored(t, behind, first.Id); got.GetVersion() != first.Version {
		t.Fatalf("the follower has %v, want version %s", got, first.Version)
	}
	l.progress(t, 50)
	follower.Disconnect(t)
	second := fixture.Write(t, all, at(first, first.Version))
	requestBookmark(t, bookmarked)

	// The client of the follower alone gets an error instead of stale data.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var calls sync.WaitGroup
	calls.Go(func() {
		got, err := behind.Read(fixture.CallTimeout(t.Context(), t, 4*time.Second), storage.StrongConsistency, first.Id)
		if !errors.Is(err, storage.ErrInconsistent) {
			t.Errorf("strong read from a partitioned member: %v, %v; want ErrInconsistent", got, err)
		}
	})
	calls.Go(func() {
		list, err := behind.List(fixture.CallTimeout(t.Context(), t, 4*time.Second), storage.StrongConsistency, serviceType, tenancy, "")
		if !errors.Is(err, storage.ErrInconsistent) {
			t.Errorf("strong list from a partitioned member: %v, %v; want ErrInconsistent", list, err)
		}
	})
	calls.Go(func() {
		for {
			ev, err := bookmarked.Next(ctx)
			if err != nil {
				return
			}
			if ev.GetBookmark() != nil {
				t.Error("a bookmark from a partitioned member")
			}
		}
	})
	calls.Wait()
	if got, err := behind.Read(fixture.Context(t), storage.EventualConsistency, first.Id); err != nil || got.Version != first.Version {
		t.Errorf("eventual read from a partitioned member: %v, %v; want the old version", got, err)
	}

	// The client of both members never goes back, whichever member answers.
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
		ev, err := behindEvents.Next(fixture.Context(t))
		if err != nil {
			t.Fatalf("the watch at the partitioned member: %v", err)
		}
		if eventText(ev) == upserted(second) {
			break
		}
	}
	for ctx, seen := fixture.Context(t), false; ; {
		ev, err := bookmarked.Next(ctx)
		if err != nil {
			t.Fatalf("the watch with the bookmark request: %v", err)
		}
		seen = seen || eventText(ev) == upserted(second)
		if ev.GetBookmark() != nil {
			if !seen {
				t.Error("the bookmark came before a write that preceded its request")
			}
			break
		}
	}
	l.finish(t, all, allEvents)
}
