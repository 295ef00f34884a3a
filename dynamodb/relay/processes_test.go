package relay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
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

// write writes a resource until stop is closed, with a pause after each write.
func write(t *testing.T, b storage.Backend, name string, pause time.Duration, stop <-chan struct{}) {
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
		if ending {
			return
		}
		if res = stored; n%7 == 0 {
			if err := b.DeleteCAS(t.Context(), res.GetId(), res.GetVersion()); err != nil {
				t.Errorf("delete: %v", err)
				return
			}
			res.Version = ""
		}
	}
}

// Handles in several processes watch a table through two relays, which are killed and frozen at random. Every handle receives every change
// once and in order of each key, and the requests to the stream do not grow with the number of handles. The fake admits two processes
// to a shard. ASHLAR_RELAY_FOR, ASHLAR_RELAY_PROCESSES and ASHLAR_RELAY_HANDLES make it longer.
func TestProcessesWatchThroughFailingRelays(t *testing.T) {
	t.Parallel()
	processes, handles, lasts := setting("ASHLAR_RELAY_PROCESSES", 2), setting("ASHLAR_RELAY_HANDLES", 4), 5*time.Second
	if text := os.Getenv("ASHLAR_RELAY_FOR"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	const shards, poll = 4, 50 * time.Millisecond
	s := dynamofake.New(t)
	s.SetShards(shards)
	s.SetReaders(2)
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
	began, before := time.Now(), s.Calls("GetRecords")
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for i := range boxNames {
		writers.Go(func() { write(t, writer, fmt.Sprint("box-", i), 20*time.Millisecond, stop) })
	}
	faults := 0
	for ; time.Since(began) < lasts; faults++ {
		i := rand.N(len(candidates))
		time.Sleep(rand.N(2 * time.Second))
		if rand.N(2) == 0 {
			candidates[i].kill()
			startCandidate(i)
			continue
		}
		p := candidates[i].command.Process
		if err := freeze.Stop(p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(4 * time.Second))
		if err := freeze.Wake(p); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	writers.Wait()
	for _, p := range watchers {
		p.await(t, "complete")
	}
	// A relay reads each shard once in a poll. After a fault, its successor reads again what the subscribers lack.
	calls, rounds := s.Calls("GetRecords")-before, int(time.Since(began)/poll)
	if most := shards * (3*rounds + 200*(faults+1)); calls > most {
		t.Errorf("%d requests for records in %d rounds with %d faults, expected at most %d", calls, rounds, faults, most)
	}
	t.Logf("%d handles, %d faults, %d requests for records in %d rounds of %d shards", processes*handles, faults, calls, rounds, shards)
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
