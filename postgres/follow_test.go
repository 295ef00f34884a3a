//go:build integration

package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The payload of each write in these tests names the version that it replaces. The events of a watch therefore prove that none is
// missing, repeated or early: for each key they must be a chain.

// follower reads a watch to its end and checks its events.
type follower struct {
	t    testing.TB
	name string
	last map[string]string // by resource name, the version in the last event
	seen map[string]bool   // versions
	done chan struct{}
}

const (
	startOver = "-"     // the payload of a creation
	marker    = "~last" // the name of the resource that ends the watches
)

func follow(t testing.TB, name string, w storage.Watch) *follower {
	f := &follower{t: t, name: name, last: map[string]string{}, seen: map[string]bool{}, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 3*fixture.Timeout)
			event, err := w.Next(ctx)
			cancel()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			if f.take(event) {
				return
			}
		}
	}()
	return f
}

// take checks an event and reports whether it is the last. It skips other keys.
func (f *follower) take(event *resourcepb.WatchEvent) bool {
	name := cmp.Or(event.GetDelete().GetResource(), event.GetUpsert().GetResource()).GetId().GetName()
	if !strings.HasPrefix(name, "key-") {
		return name == marker
	}
	if deleted := event.GetDelete().GetResource(); deleted != nil {
		if f.last[name] != deleted.GetVersion() {
			f.t.Errorf("%s: %s was deleted at %s, the last version was %q", f.name, name, deleted.GetVersion(), f.last[name])
		}
		delete(f.last, name)
		return false
	}
	res := event.GetUpsert().GetResource()
	replaced := string(res.GetData().GetValue())
	if replaced == startOver {
		replaced = ""
	}
	if f.last[name] != replaced {
		f.t.Errorf("%s: %s has version %s, which replaced %q; the last version was %q", f.name, name, res.GetVersion(), replaced, f.last[name])
	}
	f.last[name] = res.GetVersion()
	f.seen[res.GetVersion()] = true
	return false
}

// churn is a group of writers on hot keys.
type churn struct {
	t         testing.TB
	keys      int
	mayFail   bool          // with ErrInconsistent, while the database is unavailable
	limit     time.Duration // of each call; 0 is fixture.Timeout
	acked     sync.Map
	successes atomic.Int64
	uids      atomic.Int64
	group     sync.WaitGroup
	stop      chan struct{}
}

func newChurn(t testing.TB, keys int) *churn {
	return &churn{t: t, keys: keys, stop: make(chan struct{})}
}

// writer changes random keys a number of times, or until stop is closed if times is 0.
func (c *churn) writer(b storage.Backend, seed uint64, times int) {
	c.group.Go(func() {
		random := rand.New(rand.NewPCG(seed, 1))
		for done := 0; times == 0 || done < times; {
			select {
			case <-c.stop:
				return
			default:
			}
			ok, err := c.change(b, random)
			switch {
			case ok:
				done++
				c.successes.Add(1)
			case err == nil || errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid):
			case c.mayFail && errors.Is(err, storage.ErrInconsistent):
			default:
				c.t.Errorf("writer: %v", err)
				return
			}
		}
	})
}

func (c *churn) change(b storage.Backend, random *rand.Rand) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(c.limit, fixture.Timeout))
	defer cancel()
	res := fixture.Resource(fmt.Sprintf("key-%d", random.IntN(c.keys)), startOver)
	res.Id.Uid = ""
	current, err := b.Read(ctx, storage.StrongConsistency, res.Id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		res.Id.Uid = fmt.Sprintf("uid-%d", c.uids.Add(1))
	case err != nil:
		return false, err
	case random.IntN(10) < 2:
		err := b.DeleteCAS(ctx, current.Id, current.Version)
		return err == nil, err
	default:
		current.Data.Value = []byte(current.Version)
		res = current
	}
	stored, err := b.WriteCAS(ctx, res)
	if err != nil {
		return false, err
	}
	c.acked.Store(stored.Version, stored.Id.Name)
	return true, nil
}

// finish waits for the writers, ends the watches by a last write, and checks that each of them returned every acknowledged version
// and ended with the stored one.
func (c *churn) finish(b storage.Backend, followers ...*follower) {
	c.t.Helper()
	c.group.Wait()
	fixture.Write(c.t, b, fixture.Resource(marker, startOver))
	listed, err := b.List(fixture.Context(c.t), storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "key-")
	if err != nil {
		c.t.Fatal(err)
	}
	stored := map[string]string{}
	for _, res := range listed {
		stored[res.Id.Name] = res.Version
	}
	for _, f := range followers {
		<-f.done
		c.acked.Range(func(version, name any) bool {
			if !f.seen[version.(string)] {
				c.t.Errorf("%s: did not return %v of %v", f.name, version, name)
			}
			return true
		})
		if got, want := describe(f.last), describe(stored); got != want {
			c.t.Errorf("%s: ended with %s, stored is %s", f.name, got, want)
		}
	}
	if c.successes.Load() == 0 {
		c.t.Error("no write succeeded")
	}
}

func describe(versions map[string]string) string {
	var parts []string
	for i := range 1000 {
		name := fmt.Sprintf("key-%d", i)
		if v, there := versions[name]; there {
			parts = append(parts, name+"="+v)
		}
	}
	return strings.Join(parts, " ")
}
