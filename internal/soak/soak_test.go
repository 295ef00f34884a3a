//go:build integration && soak

package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/faultproxy"
	"github.com/ashlar-dev/storage/internal/testenv"
	_ "github.com/ashlar-dev/storage/postgres"
	_ "github.com/ashlar-dev/storage/sqlite"
)

var during = flag.Duration("for", time.Minute, "how long to write")

func TestMain(m *testing.M) { testenv.Main(m) }

// TestPostgres also has the server crash, because one of its processes is killed, and its disk stall.
func TestPostgres(t *testing.T) {
	server := testenv.StartPostgresStallingDisk(t)
	s := behindProxy(t, server.StoreURL(t), server.Addr)
	s.trouble.server = []func(){
		func() { server.Restart(t) },
		func() { crash(t, server.PostgresServer) },
		func() { crash(t, server.PostgresServer) },
		func() {
			server.Stall(t)
			<-time.After(s.trouble.upTo(8 * time.Second))
			server.Flow(t)
		},
	}
	soak(t, s)
}

// TestPostgresSynchronous writes to a primary that waits for its standby, which is away now and then.
func TestPostgresSynchronous(t *testing.T) {
	pair := testenv.StartPostgresPair(t)
	pair.Synchronous(t, "on")
	s := behindProxy(t, pair.Primary.StoreURL(t), pair.Primary.Addr)
	s.trouble.server = []func(){
		func() { crash(t, pair.Primary) },
		func() {
			pair.Standby.Pause(t)
			<-time.After(s.trouble.upTo(8 * time.Second))
			pair.Standby.Unpause(t)
		},
	}
	soak(t, s)
}

// crash kills one of the server's sessions, which has it end all of them and recover.
func crash(t *testing.T, server *testenv.PostgresServer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stuck)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.URL)
	if err != nil {
		return // it is still starting after the last one
	}
	var pid uint32
	err = conn.QueryRow(ctx, "select pid from pg_stat_activity where application_name = 'ashlar' order by random() limit 1").Scan(&pid)
	_ = conn.Close(ctx) // it is about to be killed
	if err == nil {
		server.KillProcess(t, pid)
		server.Await(t)
	}
}

func TestEtcd(t *testing.T) {
	server := testenv.StartEtcd(t)
	s := behindProxy(t, server.StoreURL(t), server.Endpoint)
	s.trouble.server = []func(){func() { server.Restart(t) }}
	soak(t, s)
}

// TestDynamoDB does not restart the server, which keeps its data in memory.
func TestDynamoDB(t *testing.T) {
	server := testenv.StartDynamoDB(t)
	soak(t, behindProxy(t, server.StoreURL(t), strings.TrimPrefix(server.Endpoint, "http://")))
}

// TestSQLite has no connections to break: its handles only get into each other's way.
func TestSQLite(t *testing.T) {
	soak(t, scene{direct: "sqlite:" + filepath.ToSlash(filepath.Join(t.TempDir(), "soak.db"))})
}

// TestMemory has nothing that could break either.
func TestMemory(t *testing.T) {
	soak(t, scene{direct: "mem://soak"})
}

// scene is a store and the ways to it.
type scene struct {
	direct, proxied string
	trouble         *trouble // nil: none
}

func behindProxy(t *testing.T, storeURL, addr string) scene {
	t.Helper()
	proxy := faultproxy.New(t, addr)
	proxied := strings.NewReplacer(addr, proxy.Addr(), url.QueryEscape(addr), url.QueryEscape(proxy.Addr())).Replace(storeURL)
	if proxied == storeURL {
		t.Fatalf("%s is not in the store's URL", addr)
	}
	return scene{storeURL, proxied, &trouble{proxy: proxy, random: rand.New(rand.NewPCG(rand.Uint64(), 0))}}
}

const (
	writers   = 24
	followers = 6
	stuck     = 2 * time.Minute // nothing here keeps an event back for as long
)

func soak(t *testing.T, s scene) {
	t.Helper()
	ways := []string{s.direct, s.proxied, s.proxied}
	if s.proxied == "" {
		ways = []string{s.direct, s.direct, s.direct}
	}
	var handles []storage.Backend
	for _, way := range ways {
		b, err := storage.Open(t.Context(), way)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		handles = append(handles, b)
	}
	l := newLedger()
	watching := follow(t, handles)
	writing, stop := write(t, handles, l)
	end := time.After(*during)
	if s.trouble != nil {
		s.trouble.probe = handles[1]
		s.trouble.run(t, end)
		t.Logf("%d faults", s.trouble.faults)
	} else {
		<-end
	}
	stop()
	writing.Wait()
	if err := (&writer{backend: handles[0], ledger: l, random: source()}).finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, f := range watching() {
		for i, fault := range l.audit(f.steps) {
			if i == 10 {
				t.Errorf("%s: and more", f.name)
				break
			}
			t.Errorf("%s: %v", f.name, fault)
		}
	}
	t.Logf("%d operations done, %d refused, %d of unknown outcome", l.count(done), l.count(refused), l.count(unknown))
}

func source() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }

// follow begins to watch. wait returns the followers when they have seen everything.
func follow(t *testing.T, handles []storage.Backend) (wait func() []*follower) {
	t.Helper()
	var all []*follower
	var running sync.WaitGroup
	for i := range followers {
		f := &follower{name: fmt.Sprintf("follower %d", i), handles: handles[i%3 : i%3+1], random: source()}
		switch i {
		case 3, 4:
			f.resumes = 200
		case 5:
			f.resumes, f.handles = 50, handles
		}
		w, err := f.handles[0].WatchList(context.Background(), kind, tenancy, "")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
		running.Go(func() {
			if err := f.run(w, stuck); err != nil {
				t.Errorf("%s: %v", f.name, err)
			}
		})
	}
	return func() []*follower {
		running.Wait()
		return all
	}
}

// write lets writers loose on the handles. A quarter of them are impatient.
func write(t *testing.T, handles []storage.Backend, l *ledger) (running *sync.WaitGroup, stop func()) {
	t.Helper()
	running = &sync.WaitGroup{}
	stopped := make(chan struct{})
	for i := range writers {
		w := &writer{backend: handles[i%len(handles)], ledger: l, random: source(), patience: 30 * time.Second}
		if i%4 == 0 {
			w.patience = 300 * time.Millisecond
		}
		running.Go(func() {
			if err := w.run(stopped); err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	return running, sync.OnceFunc(func() { close(stopped) })
}
