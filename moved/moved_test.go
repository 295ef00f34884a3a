package moved_test

import (
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/moved"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite"
)

func memoryURL(testing.TB) string { return "mem://" + rand.Text() }

func sqliteURL(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "store.db") }

func thing(name string) *resourcepb.Resource {
	return &resourcepb.Resource{Id: &resourcepb.ID{
		Type:    &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Thing"},
		Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"},
		Name:    name, Uid: "uid-" + name,
	}}
}

// program uses a store that moves: it counts in resources, and its watches see each count.
type program struct {
	t     *testing.T
	store *moved.Backend
	group sync.WaitGroup
	stop  context.CancelFunc
	ctx   context.Context

	mu      sync.Mutex
	written map[string]int // the last acknowledged count by name
}

// count increments a resource until the program stops.
func (p *program) count(name string) {
	for p.ctx.Err() == nil {
		res, err := p.store.Read(p.ctx, storage.StrongConsistency, thing(name).Id)
		if errors.Is(err, storage.ErrNotFound) {
			res, err = thing(name), nil
		}
		p.mu.Lock()
		last := p.written[name]
		p.mu.Unlock()
		if err == nil {
			if n, _ := strconv.Atoi(res.Generation); n != last {
				p.t.Errorf("%s: a strong read returned %d after %d was acknowledged", name, n, last)
				return
			}
			res.Generation = strconv.Itoa(last + 1)
			_, err = p.store.WriteCAS(p.ctx, res)
		}
		switch {
		case err == nil:
			p.mu.Lock()
			p.written[name] = last + 1
			p.mu.Unlock()
		case errors.Is(err, storage.ErrCASFailure): // the store has moved between the read and the write
		case p.ctx.Err() == nil:
			p.t.Errorf("%s: %v", name, err)
			return
		}
	}
}

func (p *program) counted(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written[name]
}

// followed reads a watch until it has returned the last count of each resource, and checks that it returned every count after the ones
// before, exactly once and in order.
func followed(t *testing.T, what string, w storage.Watch, last map[string]int, seen map[string]int) {
	t.Helper()
	behind := func() bool {
		for name, n := range last {
			if seen[name] < n {
				return true
			}
		}
		return false
	}
	for behind() {
		ev := fixture.Next(t, w)
		res := ev.GetUpsert().GetResource()
		if res == nil {
			continue // the end of the snapshot
		}
		n, _ := strconv.Atoi(res.Generation)
		if before, known := seen[res.Id.Name]; n != before+1 && (known || before != 0) {
			t.Fatalf("%s: %s: %d follows %d", what, res.Id.Name, n, before)
		}
		seen[res.Id.Name] = n
	}
}

// testFollow moves a store along a chain of databases while a program writes to it and watches it.
func testFollow(t *testing.T, chain ...string) {
	p := &program{t: t, store: moved.New(fixture.Open(t, chain[0]), moved.Among(chain...)), written: make(map[string]int)}
	p.ctx, p.stop = context.WithCancel(fixture.Context(t))
	t.Cleanup(func() { _ = p.store.Close() })
	early, err := p.store.WatchList(p.ctx, fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	if ev := fixture.Next(t, early); ev.GetEndOfSnapshot() == nil {
		t.Fatalf("got %v, expected the end of an empty snapshot", ev)
	}
	cursor := early.Cursor()
	names := []string{"a", "b", "c"}
	for _, n := range names {
		p.group.Go(func() { p.count(n) })
	}
	advance := func() {
		for _, n := range names {
			before := p.counted(n)
			fixture.Eventually(t, n+" to be written", func() bool { return t.Failed() || p.counted(n) > before+1 })
		}
	}
	for i := range chain[1:] {
		advance()
		from, to := fixture.Open(t, chain[i]), fixture.Open(t, chain[i+1])
		_, err := migrate.Run(fixture.Context(t), from, to, &migrate.Options{
			From: migrate.Name(chain[i]), To: migrate.Name(chain[i+1]), Live: true, CutoverLag: 10 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		advance()
	}
	p.stop()
	p.group.Wait()
	followed(t, "a watch from the beginning", early, p.written, make(map[string]int))
	late, err := p.store.WatchFrom(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	followed(t, "a watch from a cursor of the first store", late, p.written, make(map[string]int))
}

// TestFollow moves a store twice while a program writes to it and watches it.
func TestFollow(t *testing.T) {
	t.Parallel()
	t.Run("memory, SQLite, memory", func(t *testing.T) {
		t.Parallel()
		testFollow(t, memoryURL(t), sqliteURL(t), memoryURL(t))
	})
}

// TestLateReaders uses two handles of a moved store. One was opened before the move, the other after it.
func TestLateReaders(t *testing.T) {
	t.Parallel()
	url, target := sqliteURL(t), memoryURL(t)
	before, to := fixture.Open(t, url), fixture.Open(t, target)
	written := fixture.Write(t, before, thing("a"))
	old, err := before.WatchList(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if _, err := migrate.Run(fixture.Context(t), fixture.Open(t, url), to, &migrate.Options{From: "old", To: "new", Live: true, CutoverLag: time.Hour}); err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, to, thing("b"))
	for {
		_, err := old.Next(fixture.Context(t))
		move := (*storage.MovedError)(nil)
		if err == nil {
			continue
		}
		if !errors.As(err, &move) || !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrMoved) || move.Cursor == "" {
			t.Fatalf("the watch ended with %v", err)
		}
		resumer, _ := storage.As[storage.Resumer](to)
		w, err := resumer.WatchFrom(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "", move.Cursor)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if ev := fixture.Next(t, w); ev.GetUpsert().GetResource().GetId().GetName() != "b" {
			t.Errorf("the target's first change is %v, expected b", ev)
		}
		break
	}
	for name, b := range map[string]storage.Backend{"opened before": before, "opened after": fixture.Open(t, url)} {
		if _, err := b.WatchList(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, ""); !errors.Is(err, storage.ErrMoved) {
			t.Errorf("%s: a watch: %v, expected ErrMoved", name, err)
		}
		res := thing("a")
		res.Version = written.Version
		if _, err := b.WriteCAS(fixture.Context(t), res); !errors.Is(err, storage.ErrMoved) || !errors.Is(err, storage.ErrFenced) {
			t.Errorf("%s: a write: %v, expected ErrMoved", name, err)
		}
		store := moved.New(b, func(context.Context, *storage.MovedError) (storage.Backend, error) {
			return fixture.Open(t, target), nil
		})
		if got, err := store.Read(fixture.Context(t), storage.StrongConsistency, thing("b").Id); err != nil || got.Id.Name != "b" {
			t.Errorf("%s: a read: %v, %v", name, got, err)
		}
	}
}

// late is a store whose commits return only after the store has moved.
type late struct {
	*inmem.Backend
	move func()
}

func (l *late) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	results, err := l.Backend.Commit(ctx, ops)
	l.move()
	return results, err
}

// TestCommitBeforeTheMove moves a store after it has applied a transaction, and before the program gets the answer. The answer is true, or
// says that the transaction may have been applied.
func TestCommitBeforeTheMove(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"a write": nil, "a deletion": nil, "a deletion and a check": storage.ErrInconsistent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, target := memoryURL(t), memoryURL(t)
			to := fixture.Open(t, target)
			first, err := storage.Open(fixture.Context(t), url)
			if err != nil {
				t.Fatal(err)
			}
			move := sync.OnceFunc(func() {
				o := &migrate.Options{From: "old", To: "new", Live: true, CutoverLag: time.Hour}
				if _, err := migrate.Run(fixture.Context(t), fixture.Open(t, url), to, o); err != nil {
					t.Error(err)
				}
			})
			store := moved.New(&late{first.(*inmem.Backend), move}, func(ctx context.Context, _ *storage.MovedError) (storage.Backend, error) {
				return storage.Open(ctx, target)
			})
			t.Cleanup(func() { _ = store.Close() })
			b, c := fixture.Write(t, first, thing("b")), fixture.Write(t, first, thing("c"))
			ops := map[string][]storage.Op{
				"a write":                {{Write: thing("a")}},
				"a deletion":             {{Delete: b.Id, Version: b.Version}},
				"a deletion and a check": {{Delete: b.Id, Version: b.Version}, {Check: c.Id, Version: c.Version}},
			}[name]
			results, err := store.Commit(fixture.Context(t), ops)
			if !errors.Is(err, answer) || err == nil && (len(results) != 1 || results[0].GetVersion() == "" && name == "a write") {
				t.Errorf("got %v, %v, expected %v", results, err, answer)
			}
			if _, err := store.Read(fixture.Context(t), storage.StrongConsistency, c.Id); err != nil {
				t.Error(err)
			}
		})
	}
}
