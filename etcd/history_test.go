//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// load is a set of clients that read, write and delete a few keys until a test stops them. It records their operations for a check of
// linearizability. The state of a key is the name of the write that stored it, or "".
type load struct {
	keys    int
	start   time.Time
	stop    context.CancelFunc
	clients sync.WaitGroup

	mu      sync.Mutex
	history []porcupine.Operation
	acked   map[string]string // version of each acknowledged write, by "key version"
	writes  atomic.Int64
	unknown atomic.Int64
}

type action int

const (
	reading action = iota
	writing
	deleting
)

// input is the input of an operation for porcupine.
type input struct {
	key    int
	action action
	base   string // the stored state that the writer assumes
	write  string
}

type verdict int

const (
	done verdict = iota
	failed
	unknown
)

type output struct {
	verdict verdict
	state   string // of a read
}

// register is the model of a key.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[int][]porcupine.Operation{}
		for _, op := range history {
			k := op.Input.(input).key
			byKey[k] = append(byKey[k], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		s, i, o := state.(string), in.(input), out.(output)
		next := i.write // "" for a delete
		switch {
		case i.action == reading:
			return o.verdict == unknown || o.state == s, s
		case o.verdict == unknown:
			// Applied at any later time, or never. Never is equivalent to the end of the history.
			if s == i.base {
				return true, next
			}
			return true, s
		case o.verdict == failed:
			return s != i.base && (i.action == writing || s != ""), s
		case i.action == deleting && s == "":
			return true, s
		}
		return s == i.base, next
	},
	Equal: func(a, b any) bool { return a == b },
}

// newLoad starts clients on a backend.
func newLoad(t *testing.T, b storage.Backend, clients, keys int) *load {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &load{keys: keys, start: time.Now(), stop: stop, acked: map[string]string{}}
	for c := range clients {
		l.clients.Go(func() { l.client(ctx, t, b, c) })
	}
	t.Cleanup(func() { stop(); l.clients.Wait() })
	return l
}

func loadKey(k int) string { return fmt.Sprintf("load-%d", k) }

// client runs one operation after the other. Its rate keeps the history short enough for the checker.
func (l *load) client(ctx context.Context, t *testing.T, b storage.Backend, client int) {
	ticker := time.NewTicker(4 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		k := rand.IntN(l.keys)
		res, state, ok := l.read(t, b, client, k)
		if !ok {
			continue
		}
		if rand.IntN(8) == 0 && res != nil {
			l.remove(t, b, client, k, res, state)
			continue
		}
		l.write(t, b, client, k, res, state, fmt.Sprintf("c%d-%d", client, n))
	}
}

// call runs one operation with a timeout and records it.
func (l *load) call(client int, in input, f func(ctx context.Context) output) output {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	start := time.Since(l.start)
	out := f(ctx)
	end := time.Since(l.start)
	if out.verdict == unknown {
		l.unknown.Add(1)
		end = 1000 * time.Hour
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if out.verdict == unknown && in.action != reading {
		client = 1000 + len(l.history) // it may overlap the next operations of its client
	}
	if out.verdict != unknown || in.action != reading {
		l.history = append(l.history, porcupine.Operation{ClientId: client, Input: in, Call: int64(start), Output: out, Return: int64(end)})
	}
	return out
}

func (l *load) read(t *testing.T, b storage.Backend, client, k int) (res *resourcepb.Resource, state string, ok bool) {
	out := l.call(client, input{key: k, action: reading}, func(ctx context.Context) output {
		var err error
		res, err = b.Read(ctx, storage.StrongConsistency, service(loadKey(k)).Id)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			return output{}
		case err != nil:
			return output{verdict: l.verdictOf(t, "read", err)}
		}
		return output{state: res.Metadata["state"]}
	})
	return res, out.state, out.verdict == done
}

func (l *load) write(t *testing.T, b storage.Backend, client, k int, base *resourcepb.Resource, state, name string) {
	res := service(loadKey(k))
	res.Version = base.GetVersion()
	res.Metadata["state"] = name
	l.call(client, input{key: k, action: writing, base: state, write: name}, func(ctx context.Context) output {
		stored, err := b.WriteCAS(ctx, res)
		if err != nil {
			return output{verdict: l.verdictOf(t, "write", err)}
		}
		l.writes.Add(1)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.acked[upserted(stored)] = name
		return output{}
	})
}

func (l *load) remove(t *testing.T, b storage.Backend, client, k int, res *resourcepb.Resource, state string) {
	l.call(client, input{key: k, action: deleting, base: state}, func(ctx context.Context) output {
		if err := b.DeleteCAS(ctx, res.Id, res.Version); err != nil {
			return output{verdict: l.verdictOf(t, "delete", err)}
		}
		return output{}
	})
}

// verdictOf returns the verdict of an error. Only a failed comparison and an unknown outcome are legal.
func (l *load) verdictOf(t *testing.T, op string, err error) verdict {
	switch {
	case errors.Is(err, storage.ErrCASFailure):
		return failed
	case !errors.Is(err, storage.ErrInconsistent):
		t.Errorf("%s: %v", op, err)
	}
	return unknown
}

// progress waits for n more acknowledged writes.
func (l *load) progress(t *testing.T, n int64) {
	t.Helper()
	target := l.writes.Load() + n
	fixture.Eventually(t, "writes continue", func() bool { return l.writes.Load() >= target })
}

// finish stops the clients and checks the whole history. The watch, open since the start, must return each acknowledged write once.
func (l *load) finish(t *testing.T, b storage.Backend, w storage.Watch) {
	t.Helper()
	l.stop()
	l.clients.Wait()
	last := upserted(fixture.Write(t, b, service("the-end")))
	seen := map[string]bool{}
	for {
		ev, err := w.Next(fixture.Context(t))
		if err != nil {
			t.Fatalf("the watch: %v", err)
		}
		text := eventText(ev)
		if text == last {
			break
		}
		if seen[text] {
			t.Errorf("the watch has %q twice", text)
		}
		seen[text] = true
	}
	for version, name := range l.acked {
		if !seen[version] {
			t.Errorf("the watch lacks %q, write %s", version, name)
		}
	}
	switch porcupine.CheckOperationsTimeout(register, l.history, fixture.Timeout) {
	case porcupine.Illegal:
		t.Errorf("the history of %d operations is not linearizable", len(l.history))
	case porcupine.Unknown:
		t.Errorf("the history of %d operations was not decided in time", len(l.history))
	}
	t.Logf("%d operations, %d acknowledged writes, %d unknown outcomes, %d events", len(l.history), len(l.acked), l.unknown.Load(), len(seen))
}
