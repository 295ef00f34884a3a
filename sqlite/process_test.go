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

// childMain holds the main functions of child processes by name. Each gets the path of the store.
var childMain = map[string]func(path string){
	"writing":   writeUntilKilled,
	"commands":  runCommands,
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

// writeUntilKilled writes until it is killed. Each of its writers increments a resource and then a pair of resources in
// one transaction. It prints each acknowledged write.
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
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with its parent
}

// A process killed under many writes loses no acknowledged write and leaves no partial transaction.
func TestKilledWriters(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	for round := range 4 {
		_, out, cmd := startChild(t, "writing", path)
		acknowledged := map[string]int64{}
		for lines := 0; out.Scan(); lines++ {
			var name string
			var n int64
			if _, err := fmt.Sscan(out.Text(), &name, &n); err != nil {
				break // the last line is truncated
			}
			acknowledged[name] = n
			if lines == 250*(round+1) {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the child ended with %v, expected a kill", err)
		}
		s, err := New(t.Context(), path, nil)
		if err != nil {
			t.Fatalf("open the store after the kill: %v", err)
		}
		if len(acknowledged) < 16 {
			t.Fatalf("only %d keys were written, expected 16", len(acknowledged))
		}
		for name, n := range acknowledged {
			res, err := s.Read(t.Context(), storage.StrongConsistency, idOf(name))
			if err != nil {
				t.Fatal(err)
			}
			// The next write may have taken effect without an acknowledgement.
			if got := number(t, res); got != n && got != n+1 {
				t.Errorf("round %d: %s is %d, acknowledged %d", round, name, got, n)
			}
			if right, isPair := strings.CutPrefix(name, "left"); isPair {
				other, err := s.Read(t.Context(), storage.StrongConsistency, idOf("right"+right))
				if err != nil || number(t, other) != number(t, res) {
					t.Errorf("round %d: partial transaction: %s is %d, the other resource is %v, error %v", round, name, number(t, res), other, err)
				}
			}
		}
		c, err := s.handle.readers.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.pragma("integrity_check"); err != nil || got != "ok" {
			t.Errorf("integrity check: got %q, error %v", got, err)
		}
		s.handle.readers.give(c)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// runCommands executes the writes and deletions in its input, one a line.
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

// Watches see the writes of another process, in both directions.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	w := fixture.WatchChanges(t, s)
	in, out, cmd := startChild(t, "commands", s.Path())
	command := func(line string) string {
		t.Helper()
		if _, err := fmt.Fprintln(in, line); err != nil {
			t.Fatal(err)
		}
		if !out.Scan() {
			t.Fatal("the child printed nothing")
		}
		return out.Text()
	}
	if !out.Scan() || out.Text() != "ready" {
		t.Fatalf("the child printed %q, expected ready", out.Text())
	}
	for i := range 20 {
		name := fmt.Sprint("theirs-", i)
		theirs := resource(name, 0)
		theirs.Version = command("write " + name)
		wantUpsert(t, w, theirs)
		ours := fixture.Write(t, s, resource(fmt.Sprint("ours-", i), 0))
		wantUpsert(t, w, ours)
		ours.Version = command("write " + ours.Id.Name)
		wantUpsert(t, w, ours)
		if deleted := command("delete " + name); deleted != theirs.Version {
			t.Fatalf("the other process deleted version %q, expected %q", deleted, theirs.Version)
		}
		if got := fixture.Next(t, w).GetDelete().GetResource(); got.GetId().GetName() != name || got.GetVersion() != theirs.Version {
			t.Fatalf("the watch returned the deletion of %v", got)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// Processes that open the same new file at once create one store.
func TestCreationByProcesses(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var ins []io.WriteCloser
	var cmds []*exec.Cmd
	for range 4 {
		in, _, cmd := startChild(t, "commands", path)
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
		t.Fatalf("got %d resources, error %v; expected %d", len(list), err, len(ins))
	}
}

// A continue token and a revision are valid in another process while the first one writes.
func TestPagesInOtherProcesses(t *testing.T) { process.Run(t, "sqlite://"+newPath(t)) }
