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
)

// haltingFS is a file system that halts the process before a given write or sync.
type haltingFS struct {
	vfs.VFSFilename
	at int // number of writes and syncs before the halt

	mu   sync.Mutex
	done strings.Builder // a letter for each: w and s for the -wal file, W and S for the database
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

// next is called before each write and sync.
func (f *haltingFS) next(letter byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done.Len() == f.at {
		fmt.Println("halted before", string(letter))
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed or its parent ends
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

// upgradeUntilHalt opens a store and halts at the write or sync in its input.
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

// upgradeInChild upgrades a store in another process and kills the process when it halts, if the upgrade takes that
// many writes and syncs. It returns the output of the process.
func upgradeInChild(t *testing.T, path string, at int) string {
	t.Helper()
	in, out, cmd := startChild(t, "upgrading", path)
	out.Buffer(nil, 1<<20)
	if _, err := fmt.Fprintln(in, at); err != nil {
		t.Fatal(err)
	}
	if !out.Scan() {
		t.Fatalf("the child printed nothing: %v", out.Err())
	}
	output := out.Text()
	if strings.HasPrefix(output, "halted") {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the child ended with %v, expected a kill", err)
		}
		return output
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return output
}

// A process killed during an upgrade, before any write or sync of the database or its -wal file, loses nothing. The
// next process finds the store complete in either version.
func TestKilledUpgrades(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		large  int  // number of resources of half a megabyte
		points int  // number of kills, evenly spread
		syncs  bool // kill also before and after each sync
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
			killAt := func(at int) (output string, version int) {
				t.Helper()
				path := newPath(t)
				if err := os.WriteFile(path, made, 0o600); err != nil {
					t.Fatal(err)
				}
				output = upgradeInChild(t, path, at)
				version = int(queryInt(t, openDirect(t, path), readVersion))
				s := open(t, path, nil)
				o.check(s)
				checkTables(t, path)
				from := position{6, o.tag(6)}
				for from.seq < o.seq {
					events, end, _, err := s.handle.source.page(t.Context(), from, nil, 1000)
					if err != nil || int64(len(events)) != end.seq-from.seq || len(events) == 0 {
						t.Fatalf("killed at %d: got %d changes from row %d to row %d, error %v", at, len(events), from.seq, end.seq, err)
					}
					from = end
				}
				return output, version
			}
			output, version := killAt(1 << 30)
			done, is := strings.CutPrefix(output, "done ")
			if !is || version != schemaVersion {
				t.Fatalf("the child printed %q, the store has version %d", output, version)
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
			t.Logf("%d writes and syncs, killed at %d of them: version 1 remained %d times, version 2 %d times", len(done), len(moments), versions[1], versions[2])
			if versions[1] == 0 || versions[2] == 0 {
				t.Errorf("the versions after the kills are %v, expected both", versions)
			}
		})
	}
}
