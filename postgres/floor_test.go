//go:build integration

package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestFloorOfAnotherHistory sends each kind of statement through a session that assumes future numbers to be drawn already, as
// behind a pooler that leads to a restored database. Changes with such numbers would be missed, so the statement does nothing, and
// the session reads the numbers again.
func TestFloorOfAnotherHistory(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := openHandle(t, ctx, env.Postgres(t).StoreURL(t, "pool_max_conns=1")) // otherwise the statement could use another session
	var stored []*resourcepb.Resource
	for _, name := range []string{"one", "two", "three", "four"} {
		res, err := b.WriteCAS(ctx, named(name, "v"))
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, res)
	}
	for name, of := range map[string]struct {
		verb      driver.Verb
		resources []*resourcepb.Resource
		atomic    bool
	}{
		"an update":     {driver.Write, stored[:1], false},
		"updates":       {driver.Write, stored[1:3], false},
		"a deletion":    {driver.Delete, stored[3:], false},
		"a creation":    {driver.Write, []*resourcepb.Resource{named("new", "v")}, false},
		"a transaction": {driver.Write, []*resourcepb.Resource{named("x", "v"), named("y", "v")}, true},
	} {
		var ms []*mutation
		for _, res := range of.resources {
			m, err := newMutation(&driver.Mutation{
				Verb: of.verb, Key: key.Of(res.Id), Uid: res.Id.Uid, Version: res.Version, Resource: res, Exclusive: len(of.resources) == 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			ms = append(ms, m)
		}
		ahead := func() {
			t.Helper()
			conn, err := b.handle.database.main.Acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			on := b.handle.database.sessions.of(conn.Conn())
			if err := on.ask(ctx, conn.Conn(), b.handle.database.sql); err != nil {
				t.Fatal(err)
			}
			on.floor += 1000
		}
		ahead()
		if err := b.handle.sender.send(ctx, ms, of.atomic); !isLate(err) || classify(err) != outcomeNotApplied || ms[0].isApplied {
			t.Errorf("%s above numbers that are to come: %v, applied: %v; expected that nothing is done", name, err, ms[0].isApplied)
		}
		if err := b.handle.sender.send(ctx, ms, of.atomic); err != nil || !ms[0].isApplied || !ms[len(ms)-1].isApplied {
			t.Errorf("%s after that: %v, applied: %v", name, err, ms[0].isApplied)
		}
	}
}
