package sqlite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// childMain holds the main functions of child processes by name. Each gets the path of the store.
var childMain = map[string]func(path string){
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

// Processes that open the same new file at once create one store.
func TestCreationByProcesses(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	processes := faults.NewProcesses("sqlite://" + path)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			b, err := processes.Open(t.Context())
			if err == nil {
				_, err = b.WriteCAS(t.Context(), resource(fmt.Sprint(i), 0))
				err = errors.Join(err, b.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	list, err := open(t, path, nil).List(t.Context(), storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil || len(list) != 4 {
		t.Fatalf("got %d resources, error %v; expected 4", len(list), err)
	}
}
