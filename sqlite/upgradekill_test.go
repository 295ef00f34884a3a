package sqlite

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// haltingFS is a file system that stops for good before one of the writes and syncs that it is asked for.
type haltingFS struct {
	vfs.VFSFilename
	at int // so many are carried out

	mu   sync.Mutex
	done strings.Builder // a letter for each: w and s of the -wal file, W and S of the database
}

func (f *haltingFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	file, flags, err := f.VFSFilename.OpenFilename(name, flags)
	if err != nil || name.String() == "" {
		return file, flags, err
	}
	letters := "WS"
	if strings.HasSuffix(name.String(), "-wal") {
		letters = "ws"
	}
	return &haltingFile{file, f, letters}, flags, nil
}

// next is called before each.
func (f *haltingFS) next(letter byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done.Len() == f.at {
		fmt.Println("halted before", string(letter))
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed, or its parent has died
		os.Exit(1)
	}
	f.done.WriteByte(letter)
}

type haltingFile struct {
	vfs.File
	fs      *haltingFS
	letters string
}

func (f *haltingFile) SharedMemory() vfs.SharedMemory {
	return f.File.(vfs.FileSharedMemory).SharedMemory()
}

func (f *haltingFile) WriteAt(b []byte, at int64) (int, error) {
	f.fs.next(f.letters[0])
	return f.File.WriteAt(b, at)
}

func (f *haltingFile) Sync(flags vfs.SyncFlag) error {
	f.fs.next(f.letters[1])
	return f.File.Sync(flags)
}

// upgradeUntilHalt opens a store, up to the write or sync that it is told.
func upgradeUntilHalt(path string) {
	f := &haltingFS{VFSFilename: vfs.Find("os").(vfs.VFSFilename)}
	_, err := fmt.Fscanln(os.Stdin, &f.at)
	must(err)
	vfs.Register("halting", f)
	s, err := New(context.Background(), path, &Options{vfs: "halting"})
	must(err)
	must(s.Close())
	fmt.Println("done", f.done.String())
}

// upgradeInChild has another process upgrade a store, and kills it where it halts, after so many writes and syncs: never if there are
// not as many. It returns what the process has said.
func upgradeInChild(t *testing.T, path string, at int) string {
	t.Helper()
	in, out, cmd := startChild(t, "upgrading", path)
	out.Buffer(nil, 1<<20)
	if _, err := fmt.Fprintln(in, at); err != nil {
		t.Fatal(err)
	}
	if !out.Scan() {
		t.Fatalf("the child says nothing: %v", out.Err())
	}
	said := out.Text()
	if strings.HasPrefix(said, "halted") {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the child ended with %v, it was to be killed", err)
		}
		return said
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return said
}

// A process that is killed while it upgrades a store, before any write or sync of the database or of its -wal file, loses nothing: the
// next one that opens the store finds either version whole.
func TestKilledUpgrades(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		large  int  // so many resources of half a megabyte
		points int  // so many moments, evenly spread
		syncs  bool // and those before and after each sync
	}{{"small", 0, 8, true}, {"larger than the cache", 20, 4, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOldStore(t)
			o.fill()
			for i := range c.large {
				res := resource(fmt.Sprint("large-", i), 0)
				res.Metadata = map[string]string{"filler": strings.Repeat("x", 512<<10)}
				o.put(res)
			}
			execSQL(t, o.db, "PRAGMA wal_checkpoint(TRUNCATE)")
			made, err := os.ReadFile(o.path)
			if err != nil {
				t.Fatal(err)
			}
			killAt := func(at int) (said string, version int) {
				t.Helper()
				path := newPath(t)
				if err := os.WriteFile(path, made, 0o600); err != nil {
					t.Fatal(err)
				}
				said = upgradeInChild(t, path, at)
				version = versionOf(t, path)
				s := open(t, path, nil)
				o.check(s)
				checkTables(t, path)
				from := position{6, o.tag(6)}
				for from.seq < o.seq {
					events, end, _, err := s.handle.source.page(t.Context(), from, nil, 1000)
					if err != nil || int64(len(events)) != end.seq-from.seq || len(events) == 0 {
						t.Fatalf("killed at %d: %d changes from %d to %d, %v", at, len(events), from.seq, end.seq, err)
					}
					from = end
				}
				return said, version
			}
			said, version := killAt(1 << 30)
			done, is := strings.CutPrefix(said, "done ")
			if !is || version != schemaVersion {
				t.Fatalf("the child says %q, the store has version %d", said, version)
			}
			moments := map[int]bool{}
			for i := range c.points {
				moments[i*len(done)/c.points] = true
			}
			for i := range done {
				if c.syncs && strings.IndexByte("sS", done[i]) >= 0 {
					moments[i], moments[i+1] = true, true
				}
			}
			versions := map[int]int{}
			for at := range moments {
				_, version := killAt(at)
				versions[version]++
			}
			t.Logf("%d writes and syncs, killed at %d of them: %d times version 1 was left, %d times version 2", len(done), len(moments), versions[1], versions[2])
			if versions[1] == 0 || versions[2] == 0 {
				t.Errorf("versions %v were left, expected both", versions)
			}
		})
	}
}

// versionOf returns the version of the tables that somebody has left.
func versionOf(t *testing.T, path string) int {
	t.Helper()
	db := openDirect(t, path)
	if err := db.BusyTimeout(fixture.Timeout); err != nil {
		t.Fatal(err)
	}
	s, _, err := db.Prepare("SELECT version FROM meta")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.Step() {
		t.Fatal(s.Err())
	}
	return s.ColumnInt(0)
}
