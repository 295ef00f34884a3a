package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/test/process"
)

// childMain are what a process started by a test does, by name. Each gets the path of the store.
var childMain = map[string]func(path string){
	"storm":     writeUntilKilled,
	"obedient":  runCommands,
	"pruning":   pruneUntilKilled,
	"upgrading": upgradeUntilHalt,
}

// startChild starts this test binary as another process.
func startChild(t *testing.T, name, path string) (in io.WriteCloser, out *bufio.Scanner, cmd *exec.Cmd) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], path)
	cmd.Env = append(os.Environ(), "ASHLAR_SQLITE_TEST_CHILD="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, bufio.NewScanner(pipe), cmd
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writeUntilKilled writes as fast as it can until it is killed: each of several writers counts up a resource of its own, and then a pair
// in one transaction. It says which writes were acknowledged.
func writeUntilKilled(path string) {
	s, err := New(context.Background(), path, nil)
	must(err)
	var mu sync.Mutex
	for i := range 8 {
		go func() {
			name, ctx := fmt.Sprintf("single-%d", i), context.Background()
			pair := [2]string{fmt.Sprintf("left-%d", i), fmt.Sprintf("right-%d", i)}
			for n := int64(1); ; n++ {
				res := resource(name, n)
				if old, err := s.Read(ctx, storage.StrongConsistency, res.Id); err == nil {
					res.Version = old.Version
				}
				_, err := s.WriteCAS(ctx, res)
				must(err)
				mu.Lock()
				fmt.Println(name, n)
				mu.Unlock()
				ops := []storage.Op{{Write: resource(pair[0], n)}, {Write: resource(pair[1], n)}}
				for _, op := range ops {
					if old, err := s.Read(ctx, storage.StrongConsistency, op.Write.Id); err == nil {
						op.Write.Version = old.Version
					}
				}
				_, err = s.Commit(ctx, ops)
				must(err)
				mu.Lock()
				fmt.Println(pair[0], n)
				mu.Unlock()
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // dies with its parent
}

// A process that is killed in the middle of a write storm loses nothing that it has acknowledged, and leaves nothing half done.
func TestKilledWriters(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	for round := range 4 {
		_, out, cmd := startChild(t, "storm", path)
		acknowledged := map[string]int64{}
		for lines := 0; out.Scan(); lines++ {
			var name string
			var n int64
			if _, err := fmt.Sscan(out.Text(), &name, &n); err != nil {
				break // the last line, cut off
			}
			acknowledged[name] = n
			if lines == 500*(round+1) {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the child ended with %v, it was to be killed", err)
		}
		s, err := New(t.Context(), path, nil)
		if err != nil {
			t.Fatalf("open what the killed process has left: %v", err)
		}
		if len(acknowledged) < 16 {
			t.Fatalf("only %d keys were written", len(acknowledged))
		}
		for name, n := range acknowledged {
			res, err := s.Read(t.Context(), storage.StrongConsistency, idOf(name))
			if err != nil {
				t.Fatal(err)
			}
			// The one after it may have been written and not yet acknowledged.
			if got := number(t, res); got != n && got != n+1 {
				t.Errorf("round %d: %s is %d, acknowledged was %d", round, name, got, n)
			}
			if right, isPair := strings.CutPrefix(name, "left"); isPair {
				other, err := s.Read(t.Context(), storage.StrongConsistency, idOf("right"+right))
				if err != nil || number(t, other) != number(t, res) {
					t.Errorf("round %d: half of a transaction: %s is %d, the other is %v, %v", round, name, number(t, res), other, err)
				}
			}
		}
		c, err := s.handle.readers.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.pragma("integrity_check"); err != nil || got != "ok" {
			t.Errorf("integrity check: %q, %v", got, err)
		}
		s.handle.readers.give(c)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// runCommands writes and deletes what it is told to, line by line.
func runCommands(path string) {
	ctx := context.Background()
	s, err := New(ctx, path, nil)
	must(err)
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		verb, name, _ := strings.Cut(in.Text(), " ")
		old, err := s.Read(ctx, storage.StrongConsistency, idOf(name))
		if verb == "delete" {
			must(err)
			must(s.DeleteCAS(ctx, old.Id, old.Version))
			fmt.Println(old.Version)
			continue
		}
		res := resource(name, 0)
		res.Version = old.GetVersion()
		res, err = s.WriteCAS(ctx, res)
		must(err)
		fmt.Println(res.Version)
	}
	must(s.Close())
}

// A watch in one process sees what another one writes, and the other way round.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	w := fixture.WatchChanges(t, s)
	in, out, cmd := startChild(t, "obedient", s.Path())
	tell := func(line string) string {
		t.Helper()
		if _, err := fmt.Fprintln(in, line); err != nil {
			t.Fatal(err)
		}
		if !out.Scan() {
			t.Fatal("the child says nothing")
		}
		return out.Text()
	}
	if !out.Scan() || out.Text() != "ready" {
		t.Fatalf("the child says %q", out.Text())
	}
	for i := range 20 {
		name := fmt.Sprint("theirs-", i)
		theirs := resource(name, 0)
		theirs.Version = tell("write " + name)
		wantUpsert(t, w, theirs)
		ours := fixture.Write(t, s, resource(fmt.Sprint("ours-", i), 0))
		wantUpsert(t, w, ours)
		ours.Version = tell("write " + ours.Id.Name)
		wantUpsert(t, w, ours)
		if gone := tell("delete " + name); gone != theirs.Version {
			t.Fatalf("the other process deleted version %q, expected %q", gone, theirs.Version)
		}
		if got := fixture.Next(t, w).GetDelete().GetResource(); got.GetId().GetName() != name || got.GetVersion() != theirs.Version {
			t.Fatalf("the watch shows the deletion of %v", got)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// Many processes that open the same new file at once make one store.
func TestCreationByProcesses(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var ins []io.WriteCloser
	var cmds []*exec.Cmd
	for range 4 {
		in, _, cmd := startChild(t, "obedient", path)
		ins, cmds = append(ins, in), append(cmds, cmd)
	}
	for i, in := range ins {
		if _, err := fmt.Fprintf(in, "write %d\n", i); err != nil {
			t.Fatal(err)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	list, err := open(t, path, nil).List(t.Context(), storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil || len(list) != len(ins) {
		t.Fatalf("%d resources, %v; expected %d", len(list), err, len(ins))
	}
}

// A continue token and a revision of one process are good in another one, while the first writes.
func TestPagesInOtherProcesses(t *testing.T) { process.Run(t, "sqlite://"+newPath(t)) }
