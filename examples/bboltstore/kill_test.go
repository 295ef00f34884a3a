package bboltstore

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
)

// storeToWrite contains the path of a store in processes that write until they are killed.
const storeToWrite = "BBOLTSTORE_WRITE"

// writeUntilKilled returns false unless the process was started to write. In that case it writes four resources repeatedly, and
// prints each acknowledged write.
func writeUntilKilled() bool {
	path := os.Getenv(storeToWrite)
	if path == "" {
		return false
	}
	ctx := context.Background()
	b, err := Open(path, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var writers sync.WaitGroup
	var saying sync.Mutex
	for _, name := range []string{"a", "b", "c", "d"} {
		writers.Go(func() {
			res, err := b.Read(ctx, storage.StrongConsistency, newThing(name).Id)
			if err != nil {
				res = newThing(name)
			}
			for {
				if res, err = b.WriteCAS(ctx, res); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				saying.Lock()
				fmt.Println(name, res.Version)
				saying.Unlock()
			}
		})
	}
	writers.Wait()
	return true
}

// killed starts a writing process, kills it after a random number of acknowledged writes, and returns the acknowledged versions of
// each name. More writes are in flight when it dies.
func killed(t *testing.T, path string) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), storeToWrite+"="+path), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := map[string][]string{}
	lines, last := bufio.NewScanner(out), 1+rand.IntN(200)
	for n := 0; lines.Scan(); n++ {
		if n == last {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if name, version, _ := strings.Cut(lines.Text(), " "); version != "" {
			acknowledged[name] = append(acknowledged[name], version)
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the process ended by itself: %v", err)
	}
	return acknowledged
}

// Whenever the process dies, its acknowledged writes are stored. A watch from an earlier cursor returns all of them, in order, and
// at most one more write of each writer: the write in flight.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	b := opened(t, path, nil)
	w := watch(t, b, "")
	upTo(t, w)
	cursor := w.Cursor()
	for range 8 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		acknowledged := killed(t, path)
		b = opened(t, path, nil)

		w := watch(t, b, cursor)
		seen := map[string][]string{}
		events, _ := upTo(t, w)
		cursor = w.Cursor()
		for _, res := range events {
			seen[res.Id.Name] = append(seen[res.Id.Name], res.Version)
		}
		for name, versions := range seen {
			acked := acknowledged[name]
			if len(versions) < len(acked) || len(versions) > len(acked)+1 || !slices.Equal(versions[:len(acked)], acked) {
				t.Errorf("%s: %d versions were acknowledged and the watch returned %d: %v, %v", name, len(acked), len(versions), acked, versions)
			}
			stored, err := b.Read(t.Context(), storage.StrongConsistency, newThing(name).Id)
			if err != nil || stored.Version != versions[len(versions)-1] {
				t.Errorf("%s is stored at %s, %v, and the watch ends with %s", name, stored.GetVersion(), err, versions[len(versions)-1])
			}
		}
		for name := range maps.Keys(acknowledged) {
			if seen[name] == nil {
				t.Errorf("%s was acknowledged at %v, and the watch did not return it", name, acknowledged[name])
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
