//go:build integration

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// waiting counts the sessions of a server that wait for an event.
func waiting(t *testing.T, server *env.PostgresServer, event string) (n int) {
	t.Helper()
	if err := server.Connect(t).QueryRow(fixture.Context(t), "select count(*) from pg_stat_activity where lower(wait_event) = lower($1)", event).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// lasts lets a fault last.
func lasts(d time.Duration) { <-time.After(d) }

// TestSynchronousStandby disconnects the standby that the primary waits for: first for a while, with the client's connections cut
// meanwhile, then until it is promoted. Acknowledged writes must be there; absent writes must not have been acknowledged.
func TestSynchronousStandby(t *testing.T) {
	t.Parallel()
	pair := env.StartPostgresPair(t)
	pair.Synchronous(t, "on")
	const schema = "store" // dropped with the servers
	proxy := faultproxy.New(t, pair.Primary.Addr)
	b := fixture.Open(t, pair.Primary.At(t, proxy.Addr()).StoreURLIn(t, schema))
	direct := fixture.Open(t, pair.Primary.StoreURLIn(t, schema))
	w := fixture.WatchAll(t, direct)
	endOfSnapshot(t, w)
	var acked sync.Map // name: version, "" if it was deleted
	old := map[string]*resourcepb.Resource{}
	for _, name := range []string{"update", "commit", "delete"} {
		old[name] = fixture.Write(t, direct, fixture.Resource(name, "old"))
		acked.Store(name, old[name].Version)
		expect(t, "watch", w, old[name])
	}

	// The network to the primary is cut as well, while commits wait for the standby. The sessions continue to wait.
	pair.Separate(t)
	var group sync.WaitGroup
	var together atomic.Bool
	for name, call := range mutations(b, old) {
		group.Go(func() {
			version, err := call(fixture.Context(t))
			if err != nil {
				t.Errorf("cut off while it waited for the standby: %s: %v", name, err)
				return
			}
			if !together.Load() {
				t.Errorf("cut off while it waited for the standby: %s: acknowledged at %q, and no standby has it", name, version)
			}
			acked.Store(name, version)
		})
	}
	fixture.Eventually(t, "commits to wait for the standby", func() bool { return waiting(t, pair.Primary, "SyncRep") > 0 })
	proxy.Refuse()
	lasts(time.Second)
	proxy.Resume()
	lasts(4 * time.Second)
	together.Store(true)
	pair.Reunite(t)
	group.Wait()
	expectOnce(t, w, direct, "create", 1)
	pair.AwaitSynchronous(t)

	// The standby stays disconnected.
	for _, name := range []string{"update", "commit"} {
		old[name] = read(t, direct, old[name].Id)
	}
	old["delete"] = fixture.Write(t, direct, fixture.Resource("delete", "old"))
	acked.Store("delete", old["delete"].Version)
	acked.Delete("create")
	stored := read(t, direct, fixture.Resource("create", "").Id)
	if err := direct.DeleteCAS(fixture.Context(t), stored.Id, stored.Version); err != nil {
		t.Fatal(err)
	}
	pair.CatchUp(t)
	pair.Separate(t)
	for name, call := range mutations(b, old) {
		group.Go(func() {
			version, err := call(fixture.CallTimeout(context.Background(), t, 12*time.Second))
			switch {
			case err == nil:
				t.Errorf("%s: acknowledged at %q, and no standby has it", name, version)
				acked.Store(name, version)
			case !isInconsistent(err):
				t.Errorf("%s: %v, expected ErrInconsistent for lack of time", name, err)
			}
		})
	}
	group.Wait()
	pair.Promote(t)
	promoted := fixture.Open(t, pair.Standby.StoreURLIn(t, schema))
	acked.Range(func(name, version any) bool {
		res, err := promoted.Read(fixture.Context(t), storage.StrongConsistency, fixture.Resource(name.(string), "").Id)
		if version == "" && !errors.Is(err, storage.ErrNotFound) || version != "" && res.GetVersion() != version {
			t.Errorf("on the promoted standby: %s is %v, %v; acknowledged was %q", name, res, err, version)
		}
		return true
	})
}

// mutations returns every kind of changing call, by the name of the resource that it changes. Each call returns the version that is
// stored afterwards. old contains the stored resources.
func mutations(b storage.Backend, old map[string]*resourcepb.Resource) map[string]func(context.Context) (string, error) {
	written := func(res *resourcepb.Resource) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			out, err := b.WriteCAS(ctx, res)
			return out.GetVersion(), err
		}
	}
	changed := func(name string) *resourcepb.Resource {
		res := proto.CloneOf(old[name])
		res.Data.Value = []byte("new" + unique())
		return res
	}
	return map[string]func(context.Context) (string, error){
		"create": written(fixture.Resource("create", "new"+unique())),
		"update": written(changed("update")),
		"delete": func(ctx context.Context) (string, error) {
			return "", b.DeleteCAS(ctx, old["delete"].Id, old["delete"].Version)
		},
		"commit": func(ctx context.Context) (string, error) {
			transactor, _ := storage.As[storage.Transactor](b)
			out, err := transactor.Commit(ctx, []storage.Op{{Write: changed("commit")}, {Check: fixture.Resource("nothing", "").Id}})
			if err != nil {
				return "", err
			}
			return out[0].Version, nil
		},
	}
}

// TestFailOverLosesCommits promotes a standby that lacks acknowledged writes of the primary, and lets the new history pass the old
// position before any read. Watches and cursors with lost changes end with ErrCompacted, and a cursor from before continues. The
// restore of a physical backup is equivalent.
func TestFailOverLosesCommits(t *testing.T) {
	t.Parallel()
	pair := env.StartPostgresPair(t)
	const schema = "store" // dropped with the servers
	proxy := faultproxy.New(t, pair.Primary.Addr)
	b := fixture.Open(t, pair.Primary.At(t, proxy.Addr()).StoreURLIn(t, schema))
	w := fixture.WatchAll(t, b)
	endOfSnapshot(t, w)
	for i := range 3 {
		expect(t, "watch", w, fixture.Write(t, b, fixture.Resource(fmt.Sprint("common-", i), "v")))
	}
	common := w.Cursor()
	pair.CatchUp(t)

	pair.Separate(t)
	for i := range 20 {
		expect(t, "watch", w, fixture.Write(t, b, fixture.Resource(fmt.Sprint("lost-", i), "v")))
	}
	lost := w.Cursor()
	proxy.Refuse()
	proxy.Redirect(pair.Standby.Addr)
	pair.Primary.Kill(t)
	pair.Promote(t)
	elsewhere := fixture.Open(t, pair.Standby.StoreURLIn(t, schema))
	var kept []*resourcepb.Resource
	for i := range 60 {
		kept = append(kept, fixture.Write(t, elsewhere, fixture.Resource(fmt.Sprint("kept-", i), "v")))
	}
	proxy.Resume()

	for _, handle := range []struct {
		name string
		b    storage.Backend
	}{{"the handle that was open", b}, {"another handle", elsewhere}} {
		compacted(t, handle.name+", from the lost position", handle.b, lost)
		resumed := resume(t, handle.b, common)
		for _, want := range kept {
			expect(t, handle.name+", from the common position", resumed, want)
		}
	}
	if event, err := w.Next(fixture.Context(t)); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("the watch of the lost changes: %v, %v; expected ErrWatchClosed and ErrCompacted", event, err)
	}
	// The handle works again.
	after := fixture.WatchAll(t, b)
	for fixture.Next(t, after).GetEndOfSnapshot() == nil {
		continue
	}
	expect(t, "a new watch", after, fixture.Write(t, elsewhere, fixture.Resource("afterwards", "v")))
}

// compacted resumes from a cursor and expects ErrCompacted, at once or from the first Next.
func compacted(t *testing.T, what string, b storage.Backend, cursor string) {
	t.Helper()
	resumer, _ := storage.As[storage.Resumer](b)
	w, err := resumer.WatchFrom(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "", cursor)
	if err == nil {
		defer w.Close()
		ctx, cancel := context.WithTimeout(context.Background(), fixture.Timeout/2)
		defer cancel()
		var event *resourcepb.WatchEvent
		if event, err = w.Next(ctx); err == nil {
			t.Errorf("%s: event %v, expected ErrCompacted", what, event)
			return
		}
	}
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("%s: %v, expected ErrCompacted", what, err)
	}
}
