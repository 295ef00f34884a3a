package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// BenchmarkSQLite compares with the same statements by the same driver, each write a durable transaction. The files are in the
// current directory, or in ASHLAR_BENCH_DIR, which should be on a real disk.
func BenchmarkSQLite(b *testing.B) { once(b, func() { sqlite(b) }) }

func sqlite(b *testing.B) {
	dir := must(os.MkdirTemp(os.Getenv("ASHLAR_BENCH_DIR"), "bench-sqlite-"))
	dir = must(filepath.Abs(dir))
	b.Cleanup(func() { os.RemoveAll(dir) })
	url := "sqlite://" + dir + "/store.db"
	backend := open(b, url)
	follow(b, backend)
	h := fill(b, backend, "sqlite", maxCallers(), 500)
	raw := openRaw(b, dir+"/raw.db")
	// As many writes as fill has made, so that neither side's -wal file grows any more.
	for i := range maxCallers() * keysPerCaller {
		if err := raw.write(fmt.Sprintf("raw-%d-%d", i/keysPerCaller, i%keysPerCaller)); err != nil {
			b.Fatal(err)
		}
	}

	compare(b, "sqlite", "write", []int{1, 16, 64, 256}, side{"ncruces", func(caller, i int) error {
		return raw.write(fmt.Sprintf("raw-%d-%d", caller, i%keysPerCaller))
	}}, side{"ashlar", h.write})

	reader := openRaw(b, dir+"/raw.db")
	name := func(caller, i int) string { return fmt.Sprintf("raw-%d-%d", caller, i%keysPerCaller) }
	compare(b, "sqlite", "read", []int{1}, side{"ncruces", func(caller, i int) error { return reader.get(name(caller, i)) }},
		side{"ashlar", func(caller, i int) error {
			_, err := backend.Read(context.Background(), storage.EventualConsistency, h.resources[caller][i%keysPerCaller].Id)
			return err
		}})

	reported(b, "sqlite", url, 64, func() time.Duration { return 0 })

	events, writes := eventLatency(b, backend, open(b, url), "event-other-handle", scaled(500))
	fmt.Printf("sqlite/event-other-handle: p50 %v p99 %v after the acknowledgement; a write takes %v\n",
		percentile(events, 50), percentile(events, 99), percentile(writes, 50))
	otherProcess(b, url)
}

// rawStore contains the bare statements of a write and of a read.
type rawStore struct {
	mu                               sync.Mutex
	db                               *sqlite3.Conn
	begin, update, log, commit, read *sqlite3.Stmt
	seq                              int64
	data                             []byte
}

func openRaw(b *testing.B, path string) *rawStore {
	b.Helper()
	r := &rawStore{db: must(sqlite3.Open(path)), data: payload(600)}
	exec := func(sql string) {
		if err := r.db.Exec(sql); err != nil {
			b.Fatal(err)
		}
	}
	exec(`PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000; PRAGMA cache_size = -16384`)
	exec(`CREATE TABLE IF NOT EXISTS resources (key BLOB PRIMARY KEY, seq INTEGER NOT NULL, data BLOB NOT NULL) STRICT, WITHOUT ROWID;
		CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, key BLOB NOT NULL, data BLOB NOT NULL) STRICT`)
	prepare := func(sql string) *sqlite3.Stmt {
		s, _, err := r.db.Prepare(sql)
		return must(s, err)
	}
	r.begin, r.commit = prepare(`BEGIN IMMEDIATE`), prepare(`COMMIT`)
	r.update = prepare(`INSERT INTO resources (key, seq, data) VALUES (?1, ?2, ?3) ON CONFLICT (key) DO UPDATE SET seq = ?2, data = ?3`)
	r.log = prepare(`INSERT INTO log (seq, key, data) VALUES (?1, ?2, ?3)`)
	r.read = prepare(`SELECT seq, data FROM resources WHERE key = ?1`)
	b.Cleanup(func() { r.db.Close() })
	return r
}

func (r *rawStore) write(key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	if err := r.begin.Exec(); err != nil {
		return err
	}
	for _, s := range []*sqlite3.Stmt{r.update, r.log} {
		at, k := 1, 2
		if s == r.update {
			at, k = 2, 1
		}
		if err := s.BindInt64(at, r.seq); err != nil {
			return err
		}
		if err := s.BindBlob(k, []byte(key)); err != nil {
			return err
		}
		if err := s.BindBlob(3, r.data); err != nil {
			return err
		}
		if err := s.Exec(); err != nil {
			return err
		}
	}
	return r.commit.Exec()
}

func (r *rawStore) get(key string) error {
	if err := r.read.BindBlob(1, []byte(key)); err != nil {
		return err
	}
	if !r.read.Step() {
		return fmt.Errorf("no row for %s: %w", key, r.read.Err())
	}
	_ = r.read.ColumnInt64(0)
	_ = append([]byte(nil), r.read.ColumnRawBlob(1)...)
	return r.read.Reset()
}

// otherProcess measures how long after the acknowledgement an event arrives in another process, and the cost of an idle watch
// there. Both processes read the same clock.
func otherProcess(b *testing.B, url string) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestFollower$")
	cmd.Env = append(os.Environ(), "ASHLAR_BENCH_FOLLOW="+url)
	cmd.Stderr = os.Stderr
	out := must(cmd.StdoutPipe())
	in := must(cmd.StdinPipe())
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan() // ready
	backend := open(b, url)
	res := resource("event-other-process", 500)
	var delays []time.Duration
	for range scaled(300) {
		res = must(backend.WriteCAS(context.Background(), res))
		acknowledged := time.Now()
		lines.Scan()
		version, at, _ := strings.Cut(lines.Text(), " ")
		if version != res.Version {
			b.Fatalf("the other process got %q, written was %s", lines.Text(), res.Version)
		}
		var nanos int64
		must(fmt.Sscan(at, &nanos))
		delays = append(delays, max(0, time.Unix(0, nanos).Sub(acknowledged)))
	}
	fmt.Printf("sqlite/event-other-process: p50 %v p99 %v after the acknowledgement\n", percentile(delays, 50), percentile(delays, 99))
	idle := observation(10 * time.Second)
	before := cpuTime(b, cmd.Process.Pid)
	time.Sleep(idle)
	fmt.Printf("sqlite/idle-watch: %.2f %% of a core\n", 100*(cpuTime(b, cmd.Process.Pid)-before).Seconds()/idle.Seconds())
	in.Close()
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

// cpuTime returns the CPU time of a process, in the kernel's ticks of 10 ms.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))))
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+2:])
	var user, system int64
	must(fmt.Sscan(fields[11], &user))
	must(fmt.Sscan(fields[12], &system))
	return time.Duration(user+system) * 10 * time.Millisecond
}

// TestFollower is the other process: it watches until its standard input ends, and prints each version with the time of its
// arrival.
func TestFollower(t *testing.T) {
	url := os.Getenv("ASHLAR_BENCH_FOLLOW")
	if url == "" {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	backend := must(storage.Open(ctx, url))
	defer backend.Close()
	w := must(backend.WatchList(ctx, everything, anywhere, "event-other-process"))
	defer w.Close()
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString(0)
		cancel()
	}()
	for {
		ev, err := w.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.Fatal(err)
		case ev.GetUpsert() != nil:
			fmt.Println(ev.GetUpsert().Resource.Version, time.Now().UnixNano())
		default:
			fmt.Println("ready")
		}
	}
}
