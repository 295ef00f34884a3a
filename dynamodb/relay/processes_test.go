package relay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/freeze"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
)

// boxNames is the number of resources that are written. The payload of each is the number of its write; every seventh write is
// followed by a deletion, and the last one has the payload last.
const (
	boxNames = 8
	last     = "last"
)

// check reads a watch until it has returned the last write of each name. Every write and deletion must be returned once and in order.
func check(ctx context.Context, w storage.Watch, began func()) error {
	type state struct {
		writes  int
		deleted bool
	}
	states, ended := map[string]*state{}, 0
	for ended < boxNames {
		ev, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if ev.GetEndOfSnapshot() != nil {
			began()
			continue
		}
		res, deletion := ev.GetUpsert().GetResource(), ev.GetDelete() != nil
		if deletion {
			res = ev.GetDelete().GetResource()
		}
		name, payload := res.GetId().GetName(), string(res.GetData().GetValue())
		s := states[name]
		if s == nil {
			s = &state{}
			states[name] = s
		}
		if payload == last {
			ended++
			payload = strconv.Itoa(s.writes + 1)
		}
		n, err := strconv.Atoi(payload)
		switch {
		case err != nil:
			return err
		case deletion && n == s.writes && n%7 == 0 && !s.deleted:
			s.deleted = true
		case !deletion && n == s.writes+1 && s.deleted == (n%7 == 1 && n > 1):
			s.writes, s.deleted = n, false
		default:
			return fmt.Errorf("%s: event %d (deletion %v) followed %d (deletion %v)", name, n, deletion, s.writes, s.deleted)
		}
	}
	return nil
}

// write writes a resource until stop is closed, with a pause after each write, and counts the changes.
func write(t *testing.T, b storage.Backend, changes *atomic.Int64, name string, pause time.Duration, stop <-chan struct{}) {
	res := box(name, nil)
	for n := 1; ; n++ {
		res.Data.Value = strconv.AppendInt(nil, int64(n), 10)
		ending := false
		select {
		case <-stop:
			res.Data.Value, ending = []byte(last), true
		case <-time.After(pause):
		}
		stored, err := b.WriteCAS(t.Context(), res)
		if err != nil {
			t.Errorf("write: %v", err)
			return
		}
		changes.Add(1)
		if ending {
			return
		}
		if res = stored; n%7 == 0 {
			if err := b.DeleteCAS(t.Context(), res.GetId(), res.GetVersion()); err != nil {
				t.Errorf("delete: %v", err)
				return
			}
			changes.Add(1)
			res.Version = ""
		}
	}
}

// Handles in several processes watch a table through two relays, which are killed and frozen at random. Every handle receives every change
// once and in order of each key, and the requests to the stream do not grow with the number of handles. The fake admits two processes
// to a shard. `make soak-relay` makes it longer.
func TestProcessesWatchThroughFailingRelays(t *testing.T) {
	t.Parallel()
	processes, handles, lasts := setting("ASHLAR_RELAY_PROCESSES", 2), setting("ASHLAR_RELAY_HANDLES", 4), 5*time.Second
	if text := os.Getenv("ASHLAR_RELAY_FOR"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	pause := time.Duration(setting("ASHLAR_RELAY_PAUSE_MS", 50)) * time.Millisecond // of each of the writers
	const shards, poll = 4, 50 * time.Millisecond
	s := dynamofake.New(t)
	s.SetShards(shards)
	s.SetReaders(2)
	s.SetRecordPage(setting("ASHLAR_RELAY_PAGE", 3))
	url := s.URL() + "&watch=relay&relay-ttl=2s&idle-poll=200ms&poll=" + poll.String()
	writer, err := storage.Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Close() })
	candidates := make([]*process, 3)
	startCandidate := func(i int) {
		candidates[i] = startProcess(t, fmt.Sprint("candidate", i), url+relayParams, 0)
	}
	for i := range candidates {
		startCandidate(i)
	}
	var watchers []*process
	for i := range processes {
		watchers = append(watchers, startProcess(t, fmt.Sprint("watcher", i), url, handles))
	}
	for _, p := range watchers {
		p.await(t, "began")
	}
	began, before := time.Now(), streamRequests(s)
	var writers sync.WaitGroup
	var changes atomic.Int64
	stop := make(chan struct{})
	for i := range boxNames {
		writers.Go(func() { write(t, writer, &changes, fmt.Sprint("box-", i), pause, stop) })
	}
	kills, freezes := 0, 0
	for time.Since(began) < lasts {
		i := rand.N(len(candidates))
		time.Sleep(rand.N(2 * time.Second)) //nolint:forbidigo // until a random moment
		if rand.N(2) == 0 {
			candidates[i].kill()
			startCandidate(i)
			kills++
			continue
		}
		p := candidates[i].command.Process
		if err := freeze.Stop(p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(4 * time.Second)) //nolint:forbidigo // until a random moment
		if err := freeze.Wake(p); err != nil {
			t.Fatal(err)
		}
		freezes++
	}
	close(stop)
	writers.Wait()
	for _, p := range watchers {
		p.await(t, "complete")
	}
	// A relay reads each shard once in a poll. After a fault, its successor reads again what the subscribers lack.
	requests, rounds := streamRequests(s)-before, int(time.Since(began)/poll)
	if most := shards * (3*rounds + 200*(kills+freezes+1)); requests > most {
		t.Errorf("%d requests to the stream in %d rounds with %d faults, expected at most %d", requests, rounds, kills+freezes, most)
	}
	t.Logf("%d handles in %d processes, %d relays killed and %d frozen, %d changes, %d requests to the stream in %d rounds of %d shards",
		processes*handles, processes, kills, freezes, changes.Load(), requests, rounds, shards)
}

// streamRequests returns the number of requests to the stream.
func streamRequests(s *dynamofake.Server) int {
	return s.Calls("GetRecords") + s.Calls("GetShardIterator") + s.Calls("DescribeStream")
}

// relayParams make a process a candidate. The tests use loopback addresses, which must be advertised explicitly.
const relayParams = "&relay-listen=127.0.0.1:0&relay-advertise=127.0.0.1:0"

// setting returns the number in an environment variable.
func setting(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}
