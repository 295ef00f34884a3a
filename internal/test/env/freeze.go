//go:build integration

package env

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// Freeze stops the server's first process until Wake is called: its connections stay open and do not answer. For a server of one
// process this equals Pause, without the kernel's freezer, which can fail on a busy machine.
func (c *Container) Freeze(t testing.TB) {
	t.Helper()
	first := c.processes(t)[:1]
	c.signal(t, "SIGSTOP")
	c.awaitStandstill(t, first)
}

// Wake resumes a frozen server.
func (c *Container) Wake(t testing.TB) {
	t.Helper()
	c.signal(t, "SIGCONT")
}

func (c *Container) signal(t testing.TB, name string) {
	t.Helper()
	c.do(t, name, func(ctx context.Context, cli client.APIClient, id string) error {
		_, err := cli.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: name})
		return err
	})
}

// awaitStandstill waits until no thread of the processes runs. A stop signal takes effect when one of the process's threads runs
// next. On a busy machine the others continue to answer until then.
func (c *Container) awaitStandstill(t testing.TB, pids []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		moving := ""
		for _, thread := range c.threads(t) {
			stopped := strings.ContainsAny(thread.state[:1], "TZ") // Z: it has ended
			if !stopped && slices.Contains(pids, thread.pid) {
				moving = fmt.Sprintf("a thread of process %s has the state %s", thread.pid, thread.state)
			}
		}
		if moving == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("env: freeze: %s", moving)
		}
	}
}

// processes returns the pids of the processes in the container, as seen by Docker's host. The container's first process is first.
func (c *Container) processes(t testing.TB) []string {
	t.Helper()
	var first string
	c.do(t, "inspect", func(ctx context.Context, cli client.APIClient, id string) error {
		r, err := cli.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if err == nil && r.Container.State != nil {
			first = fmt.Sprint(r.Container.State.Pid)
		}
		return err
	})
	pids := []string{first}
	for _, thread := range c.threads(t) {
		if !slices.Contains(pids, thread.pid) {
			pids = append(pids, thread.pid)
		}
	}
	return pids
}

// thread is a line of ps: state begins with T for a stopped thread.
type thread struct{ pid, state string }

func (c *Container) threads(t testing.TB) (threads []thread) {
	t.Helper()
	c.do(t, "top", func(ctx context.Context, cli client.APIClient, id string) error {
		top, err := cli.ContainerTop(ctx, id, client.ContainerTopOptions{Arguments: []string{"-eLo", "pid,stat"}})
		for _, line := range top.Processes {
			if len(line) != 2 || line[1] == "" {
				return fmt.Errorf("ps printed %q under %q", line, top.Titles)
			}
			threads = append(threads, thread{pid: line[0], state: line[1]})
		}
		return err
	})
	return threads
}
