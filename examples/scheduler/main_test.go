package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/typed/tables"
)

// storeVariable is set in the environment of a process that schedules instead of testing.
const storeVariable = "ASHLAR_SCHEDULER_TEST_STORE"

// schedules runs the scheduler instead of the tests in a process that was started for it, until its standard input is closed.
func schedules() bool {
	url := os.Getenv(storeVariable)
	if url == "" {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel() // the test has ended, for any reason
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	if err := command(ctx, []string{"-store", url, "run"}); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// scheduler kills a running scheduler.
type scheduler func()

// starter starts a scheduler on a store.
type starter func(t *testing.T, url string) scheduler

// process starts a scheduler in a process of its own.
func process(t *testing.T, url string) scheduler {
	t.Helper()
	if os.Getenv(storeVariable) != "" {
		t.Fatal("a scheduler process must not start another process")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$") // without the variable it would do nothing
	cmd.Env = append(os.Environ(), storeVariable+"="+url)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// inside starts a scheduler in this process, for a store in memory. It is cancelled at any point instead of killed.
func inside(t *testing.T, url string) scheduler {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- command(ctx, []string{"-store", url, "run"}) }()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the scheduler ended: %v", err)
		}
	}
}

// memories counts the stores in memory, which live as long as the process.
var memories atomic.Int64

func TestMemory(t *testing.T) {
	t.Parallel()
	schedule(t, fmt.Sprint("mem://scheduler-", memories.Add(1)), inside, func() {})
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	schedule(t, "sqlite:"+filepath.Join(t.TempDir(), "scheduler.db"), process, func() {})
}

// The size of the cluster, and of each service.
const (
	manyNodes = 6
	replicas  = 16
)

// schedule runs two schedulers, kills and restarts them, marks nodes down and up, and grows and shrinks services. At the end every
// wanted task exists once and runs on a node that is up. Meanwhile an observer checks that no task is assigned to a node while it
// is assigned to another, and that every node's count of tasks is right.
func schedule(t *testing.T, url string, start starter, disturb func()) {
	ctx := t.Context() // each wait has its own bound, because the whole test takes minutes on a busy machine
	b := fixture.Open(t, url)
	s, err := open(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	observed := observe(t, s)
	running := []scheduler{start(t, url), start(t, url)}
	defer func() {
		for _, kill := range running {
			kill()
		}
	}()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{}
	grow := func(service string, replicas int) {
		t.Helper()
		want[service] = replicas
		do(setService(ctx, s, service, replicas))
	}
	// One more task at a time, which both schedulers try to assign concurrently.
	compete := func(service string) {
		t.Helper()
		for n := range replicas / 2 {
			grow(service, n+1)
			do(until(ctx, s, settled(want)))
		}
	}
	do(addNodes(ctx, s, manyNodes))
	for round := range 4 {
		service := fmt.Sprint("service-", round)
		compete(service)
		// Kill one in the middle of its work, which has begun when a task is assigned.
		grow(service, replicas)
		do(until(ctx, s, func(v *tables.View) (bool, error) {
			of, err := tasks.List(v, taskService.Is(service))
			waiting, errWaiting := tasks.List(v, taskService.Is(service), taskNode.Is(""))
			return len(of)-len(waiting) > replicas/2, errors.Join(err, errWaiting)
		}))
		running[round%2]()
		do(markNodes(ctx, s, fmt.Sprintf("node-%03d", round), true))
		grow("other", 10*(round%2))
		if round == 2 {
			disturb()
		}
		running[round%2] = start(t, url)
		if round%2 == 1 {
			do(markNodes(ctx, s, "node-000", false))
		}
	}
	do(until(ctx, s, settled(want)))
	compete("last")
	observed(t)
}

// until waits until a condition of the store holds.
func until(ctx context.Context, s *tables.Store, holds func(*tables.View) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, fixture.Timeout)
	defer cancel()
	for {
		ok := false
		w, err := s.ViewAndWatch(ctx, func(v *tables.View) (err error) {
			ok, err = holds(v)
			return err
		})
		if err != nil || ok {
			if w != nil {
				w.Close()
			}
			return err
		}
		_, err = w.Next(ctx)
		w.Close()
		if err != nil && !errors.Is(err, storage.ErrWatchClosed) {
			return err
		}
	}
}

// settled reports whether exactly the wanted tasks exist, and all run on nodes that are up.
func settled(want map[string]int) func(*tables.View) (bool, error) {
	return func(v *tables.View) (bool, error) {
		if err := counted(v); err != nil {
			return false, err
		}
		total := 0
		for service, n := range want {
			total += n
			of, err := tasks.List(v, taskService.Is(service))
			if err != nil || len(of) != n {
				return false, err
			}
		}
		all, err := tasks.List(v)
		if err != nil || len(all) != total {
			return false, err
		}
		for _, task := range all {
			if task.Data.Node == "" {
				return false, nil
			}
			node, err := nodes.Get(v, nodes.ID(cluster, task.Data.Node))
			if err != nil || node.Data.Down {
				return false, err
			}
		}
		return true, nil
	}
}

// counted fails if a node's count differs from its assigned tasks.
func counted(v *tables.View) error {
	all, err := nodes.List(v)
	for _, node := range all {
		on, err := tasks.List(v, taskNode.Is(node.ID.Name))
		if err != nil {
			return err
		}
		if len(on) != node.Data.Tasks {
			return fmt.Errorf("%s counts %d tasks, %d are assigned to it", node.ID.Name, node.Data.Tasks, len(on))
		}
	}
	return err
}

// observe follows all changes until the returned function is called, which fails the test if a task was assigned twice.
func observe(t *testing.T, s *tables.Store) func(t *testing.T) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	w, err := s.ViewAndWatch(ctx, nil, tasks.Where())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		defer w.Close()
		for {
			ev, err := w.Next(ctx)
			if err != nil {
				done <- err
				return
			}
			if c, _ := tasks.Event(ev); c.Old != nil && c.New != nil && c.Old.Data.Node != "" && c.New.Data.Node != "" && c.Old.Data.Node != c.New.Data.Node {
				done <- fmt.Errorf("%s was assigned to %s while it was assigned to %s", c.New.ID.Name, c.New.Data.Node, c.Old.Data.Node)
				return
			}
		}
	}()
	t.Cleanup(cancel)
	return func(t *testing.T) {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
