//go:build integration

package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ordering is a group of writers whose calls record when they began and when they were answered, by a shared counter. The order of
// a watch can then be compared with time: if one call began after another was answered, its events come later.
type ordering struct {
	t     testing.TB
	clock atomic.Int64
	calls sync.Map // by the call's name: *timed
	group sync.WaitGroup
	named atomic.Int64
}

// timed is a call: when it began, when it was answered (0: it failed), and how many events it causes.
type timed struct {
	began, acked int64
	events       int
}

// change is one event of a watch.
type change struct{ call, key, version string }

// begin records the start of a call with this many events.
func (o *ordering) begin(events int) (name string, entry *timed) {
	name = fmt.Sprint("call-", o.named.Add(1))
	entry = &timed{began: o.clock.Add(1), events: events}
	o.calls.Store(name, entry)
	return name, entry
}

// writer makes creations, updates, and transactions of several keys in turn.
func (o *ordering) writer(b storage.Backend, keys string, seed uint64, calls int) {
	o.group.Go(func() {
		random := rand.New(rand.NewPCG(seed, 3))
		transactor, _ := storage.As[storage.Transactor](b)
		stored := map[string]string{} // versions of own keys
		fill := func(key, call string) *resourcepb.Resource {
			res := fixture.Resource(keys+key, call)
			res.Version = stored[key]
			return res
		}
		for range calls {
			ctx, cancel := context.WithTimeout(context.Background(), fixture.Timeout)
			if random.IntN(4) > 0 {
				key := fmt.Sprint("-", random.IntN(8))
				call, entry := o.begin(1)
				out, err := b.WriteCAS(ctx, fill(key, call))
				if err != nil {
					o.t.Errorf("write: %v", err)
					cancel()
					return
				}
				entry.acked = o.clock.Add(1)
				stored[key] = out.Version
			} else {
				call, entry := o.begin(4)
				var ops []storage.Op
				var names []string
				for _, i := range random.Perm(8)[:4] {
					names = append(names, fmt.Sprint("-", i))
					ops = append(ops, storage.Op{Write: fill(names[len(names)-1], call)})
				}
				out, err := transactor.Commit(ctx, ops)
				if err != nil {
					o.t.Errorf("commit: %v", err)
					cancel()
					return
				}
				entry.acked = o.clock.Add(1)
				for i, name := range names {
					stored[name] = out[i].Version
				}
			}
			cancel()
		}
	})
}

// record returns the changes of a watch up to the marker, in their order.
func record(w storage.Watch) ([]change, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*fixture.Timeout)
	defer cancel()
	var all []change
	for {
		event, err := w.Next(ctx)
		if err != nil {
			return all, err
		}
		res := event.GetUpsert().GetResource()
		switch {
		case res == nil:
		case res.Id.Name == marker:
			return all, nil
		default:
			all = append(all, change{call: string(res.Data.Value), key: res.Id.Name, version: res.Version})
		}
	}
}

// check verifies that the changes are one serial order of the calls: every event once, the events of a call together, and no call
// before a call that was answered before it began.
func (o *ordering) check(who string, all []change) {
	o.t.Helper()
	count := map[string]int{}
	var last string
	var latest int64 // start of the latest call so far
	var after string
	for _, c := range all {
		found, known := o.calls.Load(c.call)
		if !known {
			o.t.Errorf("%s: no call made %v", who, c)
			return
		}
		entry := found.(*timed)
		if c.call != last && count[c.call] > 0 {
			o.t.Errorf("%s: the events of %s are not together: %v follows one of %s", who, c.call, c, last)
			return
		}
		if entry.acked != 0 && entry.acked < latest {
			o.t.Errorf("%s: %v comes after %s, which began later (at %d) than the former was answered (at %d)", who, c, after, latest, entry.acked)
			return
		}
		if entry.began > latest {
			latest, after = entry.began, c.call
		}
		count[c.call]++
		last = c.call
	}
	o.calls.Range(func(name, entry any) bool {
		if e := entry.(*timed); e.acked != 0 && count[name.(string)] != e.events {
			o.t.Errorf("%s: %d events of %v, expected %d", who, count[name.(string)], name, e.events)
			return false
		}
		return true
	})
}

// inOrder runs writers on two handles and watches on three, and checks that all watches return the same serial order.
func inOrder(t *testing.T, storeURL string, writers, calls int) {
	t.Helper()
	o := &ordering{t: t}
	handles := []storage.Backend{fixture.Open(t, storeURL), fixture.Open(t, storeURL), fixture.Open(t, storeURL)}
	type recorded struct {
		all []change
		err error
	}
	var watching sync.WaitGroup
	records := make([]recorded, len(handles))
	for i, b := range handles {
		w := fixture.WatchAll(t, b)
		endOfSnapshot(t, w)
		watching.Go(func() { records[i].all, records[i].err = record(w) })
	}
	for i := range writers {
		o.writer(handles[i%2], fmt.Sprint("writer-", i), uint64(i), calls)
	}
	o.group.Wait()
	fixture.Write(t, handles[0], fixture.Resource(marker, ""))
	watching.Wait()
	for i, r := range records {
		if r.err != nil {
			t.Errorf("watch %d: %v", i, r.err)
			continue
		}
		o.check(fmt.Sprint("watch ", i), r.all)
		if !slices.Equal(r.all, records[0].all) {
			at := 0
			for at < min(len(r.all), len(records[0].all)) && r.all[at] == records[0].all[at] {
				at++
			}
			t.Errorf("watch %d has another order than watch 0, from event %d of %d and %d on", i, at, len(r.all), len(records[0].all))
		}
	}
}

// TestOneOrder proves that all changes have one serial order, whichever handles write and watch: with many writers, whose batches
// are large, and with few.
func TestOneOrder(t *testing.T) {
	t.Parallel()
	for _, writers := range []int{2, 6, 32} {
		t.Run(fmt.Sprint(writers), func(t *testing.T) {
			t.Parallel()
			inOrder(t, env.Postgres(t).StoreURL(t), writers, 800/writers)
		})
	}
}

// TestOneOrderByPolling works without LISTEN.
func TestOneOrderByPolling(t *testing.T) {
	t.Parallel()
	inOrder(t, env.Postgres(t).StoreURL(t, "listen=off", "poll=5ms"), 6, 100)
}

// TestOneOrderResumed starts a new watch from each event's cursor, on alternating handles. The positions follow the same order.
func TestOneOrderResumed(t *testing.T) {
	t.Parallel()
	o := &ordering{t: t}
	storeURL := env.Postgres(t).StoreURL(t)
	handles := []storage.Backend{fixture.Open(t, storeURL), fixture.Open(t, storeURL)}
	w := fixture.WatchAll(t, handles[0])
	endOfSnapshot(t, w)
	start := w.Cursor()
	for i := range 6 {
		o.writer(handles[i%2], fmt.Sprint("writer-", i), uint64(i), 60)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		o.group.Wait()
		if _, err := handles[0].WriteCAS(fixture.Context(t), fixture.Resource(marker, "")); err != nil {
			t.Error(err)
		}
	}()
	var all []change
	for i := 0; ; i++ {
		event := fixture.Next(t, w)
		res := event.GetUpsert().GetResource()
		if res.GetId().GetName() == marker {
			break
		}
		all = append(all, change{call: string(res.Data.Value), key: res.Id.Name, version: res.Version})
		if i%7 == 0 {
			cursor := w.Cursor()
			w.Close()
			w = resume(t, handles[i%2], cursor)
		}
	}
	o.check("resumed watch", all)
	again, err := record(resume(t, handles[1], start))
	if err != nil || !slices.Equal(again, all) {
		t.Errorf("from the first cursor: %d events, %v; %d events piece by piece; the same order: %t", len(again), err, len(all), slices.Equal(again, all))
	}
}

// isolated creates a database whose sessions start transactions at this level.
func isolated(t *testing.T, level string) *env.PostgresServer {
	t.Helper()
	server := env.Postgres(t).Database(t)
	name := strings.TrimPrefix(parseURL(t, server.URL).Path, "/")
	if _, err := server.Connect(t).Exec(fixture.Context(t), "alter database "+name+" set default_transaction_isolation = '"+level+"'"); err != nil {
		t.Fatal(err)
	}
	return server
}

// TestIsolation proves that the adapter does not depend on the default isolation level.
func TestIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(strings.ReplaceAll(level, " ", "-"), func(t *testing.T) {
			t.Parallel()
			server := isolated(t, level)
			t.Run("order", func(t *testing.T) {
				t.Parallel()
				inOrder(t, server.StoreURL(t), 6, 150)
			})
			t.Run("hot keys", func(t *testing.T) {
				t.Parallel()
				storeURL := server.StoreURL(t)
				c := newChurn(t, 10)
				handles := []storage.Backend{fixture.Open(t, storeURL), fixture.Open(t, storeURL)}
				followers := []*follower{follow(t, "watch", fixture.WatchAll(t, handles[0])), follow(t, "other watch", fixture.WatchAll(t, handles[1]))}
				for i := range 12 {
					c.writer(handles[i%2], uint64(i), 60)
				}
				c.finish(handles[0], followers...)
			})
		})
	}
}
