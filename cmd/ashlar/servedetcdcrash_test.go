package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage/internal/freeze"
)

func TestServeEtcdCrashesOnSQLite(t *testing.T) {
	t.Parallel()
	etcdCrashes(t, "sqlite:"+filepath.Join(t.TempDir(), "keys.db"))
}

// crashes collects the responses that clients of a repeatedly killed server received.
type crashes struct {
	t *testing.T

	mu                   sync.Mutex
	acknowledged, denied map[string]int64 // keys, with the revisions of the responses
	open                 int
	answers              chan struct{}
	seen                 map[string][]int64 // the revisions at which watches have shown a key
	next                 int64              // where the next watch resumes
}

// etcdCrashes repeatedly kills a server under writers and restarts it. Acknowledged writes exist and denied ones do not, transactions exist
// completely or not at all, and resumed watches show each change once.
func etcdCrashes(t *testing.T, store string) {
	t.Helper()
	const rounds, most = 4, 150
	ctx, cancel := context.WithTimeout(t.Context(), 4*waitTimeout)
	defer cancel()
	c := &crashes{t: t, acknowledged: map[string]int64{}, denied: map[string]int64{}, seen: map[string][]int64{}, next: 1}
	for round := range rounds {
		c.answers = make(chan struct{}, 1000)
		s := serveEtcd(t, store)
		client := etcdClient(t, s, nil)
		working, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		all.Go(func() { c.watch(working, client) })
		for w := range 16 {
			all.Go(func() { c.write(working, client, fmt.Sprintf("w/%d/%d/", round, w)) })
		}
		for range most {
			select {
			case <-c.answers:
			case <-ctx.Done():
				t.Fatalf("round %d: %v", round, ctx.Err())
			}
		}
		s.signal(syscall.SIGKILL)
		s.end()
		stop()
		all.Wait()
	}
	client := etcdClient(t, serveEtcd(t, store), nil)
	c.check(ctx, client)
	t.Logf("%d changes were acknowledged, %d denied, of %d the outcome is not known", len(c.acknowledged), len(c.denied), c.open)
}

// write increments keys that other writers increment as well, and stores each number under its own key, until the server ends.
func (c *crashes) write(ctx context.Context, client *clientv3.Client, prefix string) {
	for i := 0; ctx.Err() == nil; i++ {
		key, counter := prefix+strconv.Itoa(i), fmt.Sprint("counter/", i%4)
		now, err := client.Get(ctx, counter)
		if err != nil {
			return
		}
		n, revision := 0, int64(0)
		if len(now.Kvs) > 0 {
			_, _ = fmt.Sscan(string(now.Kvs[0].Value), &n)
			revision = now.Kvs[0].ModRevision
		}
		r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(counter), "=", revision)).
			Then(clientv3.OpPut(counter, strconv.Itoa(n+1)), clientv3.OpPut(key, counter)).
			Else(clientv3.OpGet(counter)).Commit()
		c.mu.Lock()
		switch {
		case err != nil:
			c.open++
		case r.Succeeded:
			c.acknowledged[key] = r.Header.Revision
		default:
			c.denied[key] = r.Header.Revision
		}
		c.mu.Unlock()
		select {
		case c.answers <- struct{}{}:
		default:
		}
	}
}

// watch records the events of a watch, from where the last one ended.
func (c *crashes) watch(ctx context.Context, client *clientv3.Client) {
	for answer := range client.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithRev(c.next)) {
		if err := answer.Err(); err != nil && !errors.Is(err, context.Canceled) {
			c.t.Errorf("a watch from revision %d: %v", c.next, err)
			return
		}
		for _, ev := range answer.Events {
			c.next = ev.Kv.ModRevision + 1
			c.seen[string(ev.Kv.Key)] = append(c.seen[string(ev.Kv.Key)], ev.Kv.ModRevision)
			if string(ev.Kv.Key) == "w/end" {
				return
			}
		}
	}
}

func (c *crashes) check(ctx context.Context, client *clientv3.Client) {
	t := c.t
	_, err := client.Put(ctx, "w/end", "")
	require.NoError(t, err)
	watching, stop := context.WithCancel(ctx)
	c.watch(watching, client)
	stop()
	all, err := client.Get(ctx, "w/", clientv3.WithPrefix())
	require.NoError(t, err)
	stored, counted := map[string]bool{}, map[string]int{}
	for _, kv := range all.Kvs {
		key := string(kv.Key)
		stored[key] = true
		counted[string(kv.Value)]++
		require.Equal(t, []int64{kv.ModRevision}, c.seen[key], "%s was seen at these revisions", key)
	}
	require.Equal(t, slices.Sorted(maps.Keys(stored)), slices.Sorted(maps.Keys(c.seen)))
	for key, revision := range c.acknowledged {
		require.True(t, stored[key], "%s was acknowledged at revision %d and does not exist", key, revision)
		require.LessOrEqual(t, c.seen[key][0], revision, key)
	}
	for key, revision := range c.denied {
		require.False(t, stored[key], "%s was denied at revision %d and exists", key, revision)
	}
	counters, err := client.Get(ctx, "counter/", clientv3.WithPrefix())
	require.NoError(t, err)
	for _, kv := range counters.Kvs {
		require.Equal(t, strconv.Itoa(counted[string(kv.Key)]), string(kv.Value), "half of a transaction of %s exists", kv.Key)
	}
}

func TestServeEtcdFrozenOnSQLite(t *testing.T) {
	t.Parallel()
	etcdFrozen(t, "sqlite:"+filepath.Join(t.TempDir(), "keys.db"))
}

// etcdFrozen freezes one of two servers of a store for longer than the time to live of a lease. When it resumes, it must not end a lease
// that was renewed at the other server, and must not renew a lease that the other server has ended. The test is repeated with a longer time
// to live if the machine was too slow to renew a lease in time.
func etcdFrozen(t *testing.T, store string) {
	t.Helper()
	still, awake := serveEtcd(t, store), serveEtcd(t, store)
	there, here := etcdClient(t, still, nil), etcdClient(t, awake, nil)
	for ttl := 3 * time.Second; !testFrozen(t, still, there, here, ttl); ttl *= 4 {
		require.Less(t, ttl, 2*time.Minute, "a lease expired before its use")
		t.Logf("a lease of %v expired before its use, trying a longer one", ttl)
	}
}

// testFrozen returns false if the test itself was late by the time to live.
func testFrozen(t *testing.T, still *serverProcess, there, here *clientv3.Client, ttl time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*waitTimeout+10*ttl)
	defer cancel()
	granted := func(key string) (clientv3.LeaseID, bool) {
		began := time.Now()
		lease, err := there.Grant(ctx, int64(ttl/time.Second))
		require.NoError(t, err)
		_, err = there.Put(ctx, key, "", clientv3.WithLease(lease.ID))
		if err != nil && time.Since(began) >= ttl {
			return 0, false
		}
		require.NoError(t, err)
		return lease.ID, true
	}
	has := func(c *clientv3.Client, key string) bool {
		r, err := c.Get(ctx, key)
		require.NoError(t, err)
		return len(r.Kvs) == 1
	}
	livingKey, dyingKey := "living-"+ttl.String(), "dying-"+ttl.String()
	last := time.Now() // when the lease was renewed, or earlier
	living, ok := granted(livingKey)
	if !ok {
		return false
	}
	dying, ok := granted(dyingKey)
	if !ok {
		return false
	}
	late := func() bool { return time.Since(last) >= ttl }
	renewed := func(times int) bool { // each a third of the time to live after the previous one
		for range times {
			<-time.After(ttl / 3)
			asked := time.Now()
			answer, err := here.KeepAliveOnce(ctx, living)
			if errors.Is(err, rpctypes.ErrLeaseNotFound) && late() {
				return false
			}
			require.NoError(t, err, "the lease has ended though it was renewed in time")
			require.EqualValues(t, ttl/time.Second, answer.TTL)
			last = asked
		}
		return true
	}
	if !renewed(1) {
		return false
	}
	for {
		require.NoError(t, freeze.Stop(still.cmd.Process))
		probing, cancel := context.WithTimeout(ctx, ttl/6)
		_, err := here.Put(probing, "probe", "")
		cancel()
		if err == nil {
			break
		}
		require.NoError(t, ctx.Err())
		require.NoError(t, freeze.Wake(still.cmd.Process)) // it was frozen inside a transaction, which blocks other writers
	}
	inTime := renewed(6) // two times to live
	if inTime {
		require.Eventually(t, func() bool { return !has(here, dyingKey) }, waitTimeout, 50*time.Millisecond)
	}
	require.NoError(t, freeze.Wake(still.cmd.Process))
	if !inTime {
		return false
	}
	_, err := there.KeepAliveOnce(ctx, dying)
	require.ErrorContains(t, err, "lease not found")
	if !renewed(3) {
		return false
	}
	if lives := has(there, livingKey) && has(here, livingKey); !lives {
		require.True(t, late(), "the lease has ended though it was renewed in time")
		return false
	}
	require.Eventually(t, func() bool { return !has(there, livingKey) }, waitTimeout, 50*time.Millisecond)
	return true
}
