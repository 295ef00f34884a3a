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

// Freeze stops the server's first process until Wake is called: its connections stay open and nothing answers. For a server of one
// process that is what Pause does, without the freezer of the kernel, which on a busy machine can fail.
func (c *Container) Freeze(t testing.TB) {
	t.Helper()
	first := c.processes(t)[:1]
	c.signal(t, "SIGSTOP")
	c.awaitStandstill(t, first)
}

// Wake ends a Freeze.
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

// awaitStandstill waits until no thread of the processes runs, each of which was told to stop. A signal to stop is obeyed when one of the
// process's threads runs next; until then the others go on answering, on a busy machine for as long as it takes to read an answer.
func (c *Container) awaitStandstill(t testing.TB, pids []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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

// processes returns the pids, as the host of Docker has them, of the processes in the container, the first one in front.
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

// thread is a line of what ps tells: state begins with T for a thread that was stopped.
type thread struct{ pid, state string }

func (c *Container) threads(t testing.TB) (threads []thread) {
	t.Helper()
	c.do(t, "top", func(ctx context.Context, cli client.APIClient, id string) error {
		top, err := cli.ContainerTop(ctx, id, client.ContainerTopOptions{Arguments: []string{"-eLo", "pid,stat"}})
		for _, line := range top.Processes {
			if len(line) != 2 || line[1] == "" {
				return fmt.Errorf("ps tells %q under %q", line, top.Titles)
			}
			threads = append(threads, thread{pid: line[0], state: line[1]})
		}
		return err
	})
	return threads
}
