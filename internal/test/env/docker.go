//go:build integration

package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/exec"
	"github.com/testcontainers/testcontainers-go/log"
)

// patience bounds every wait of this package: far beyond what a loaded machine with two cores needs.
const patience = 3 * time.Minute

func init() {
	// Its container of the same purpose would be one more image to provide; owner labels do its work (see sweep.go).
	if os.Getenv("TESTCONTAINERS_RYUK_DISABLED") == "" {
		_ = os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	}
	log.SetDefault(log.NewNoopLogger())
}

// Container is one running server in a container. Its methods end the test when Docker refuses.
type Container struct {
	// Addr is where the server listens, as host:port. It stays the same when the server is restarted.
	Addr string

	ctr   testcontainers.Container
	close func() error                // drops the connections that methods of ctr leave open
	ready func(context.Context) error // one attempt to find out whether the server serves
}

// spec says what to run.
type spec struct {
	name    string // for messages
	image   string
	env     map[string]string
	cmd     []string
	entry   []string
	port    int // the one the server listens on inside
	files   []testcontainers.ContainerFile
	volumes []string              // as in docker run -v
	tmpfs   map[string]string     // file systems in memory: where, and their options
	peers   string                // id of a network to join, besides the one that publishes the port
	aliases []string              // names on that network
	command func(string) []string // cmd, where it depends on the address
	wait    bool                  // until ready
	ready   func(ctx context.Context, addr string) error
}

// docker calls f with a connection to the daemon. The connection is closed afterwards: nothing of it is to be seen when
// a test looks for leaked goroutines.
func docker(f func(p *testcontainers.DockerProvider) error) error {
	p, err := testcontainers.NewDockerProvider(testcontainers.WithDefaultBridgeNetwork("bridge"))
	if err != nil {
		return fmt.Errorf("no Docker daemon answers: %w", err)
	}
	err = f(p)
	return errors.Join(err, p.Close())
}

// run starts a container and waits until its server is ready.
func run(ctx context.Context, s spec) (*Container, error) {
	sweep()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for range 8 {
		c, retry, err := runOnce(ctx, s)
		if err == nil {
			return c, nil
		}
		last = err
		if !retry {
			break
		}
	}
	return nil, last
}

// runOnce reports whether another attempt, on another port, makes sense.
func runOnce(ctx context.Context, s spec) (_ *Container, retry bool, err error) {
	c := &Container{}
	err = docker(func(p *testcontainers.DockerProvider) error {
		c.close = p.Close
		host, local, err := publishedAt(ctx, p)
		if err != nil {
			return err
		}
		bind := netip.IPv4Unspecified()
		if local {
			bind = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		port, err := freePort()
		if err != nil {
			return err
		}
		c.Addr = net.JoinHostPort(host, strconv.Itoa(port))
		if s.ready != nil {
			c.ready = func(ctx context.Context) error { return s.ready(ctx, c.Addr) }
		}
		cmd := s.cmd
		if s.command != nil {
			cmd = s.command(c.Addr)
		}
		inside := network.MustParsePort(fmt.Sprintf("%d/tcp", s.port))
		c.ctr, err = p.CreateContainer(ctx, testcontainers.ContainerRequest{
			Image: s.image, Env: s.env, Cmd: cmd, Entrypoint: s.entry, Files: s.files, Labels: labels(),
			ExposedPorts: []string{inside.String()},
			HostConfigModifier: func(h *container.HostConfig) {
				h.PortBindings = network.PortMap{inside: {{HostIP: bind, HostPort: strconv.Itoa(port)}}}
				h.Binds = s.volumes
				h.Tmpfs = s.tmpfs
				h.ShmSize = 256 << 20
			},
		})
		if err != nil {
			return err
		}
		if s.peers != "" {
			if err := connect(ctx, p.Client(), s.peers, c.ctr.GetContainerID(), s.aliases); err != nil {
				return err
			}
		}
		return c.ctr.Start(ctx)
	})
	if err == nil && s.wait {
		if err = reach(ctx, c.Addr); err == nil {
			err = c.await(ctx)
		}
	}
	if err == nil {
		return c, false, nil
	}
	// Between our look at the port and Docker's use of it somebody else may have taken it.
	text := err.Error()
	retry = strings.Contains(text, "already allocated") || strings.Contains(text, "already in use")
	if c.ctr != nil {
		if !retry {
			err = fmt.Errorf("%w\n%s", err, c.tail())
		}
		_ = c.remove()
	}
	return nil, retry, fmt.Errorf("%s (image %s): %w", s.name, s.image, err)
}

// freePort picks a free port outside the range from which the kernel takes the ports of outgoing connections: while a
// server is down for its restart, nothing else is likely to take it.
func freePort() (int, error) {
	for range 200 {
		port := 12000 + rand.IntN(20000)
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return 0, err
		}
		return port, nil
	}
	return 0, errors.New("no free port found")
}

// await waits until the server is ready, as long as its container runs.
func (c *Container) await(ctx context.Context) error {
	if c.ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		attempt, stop := context.WithTimeout(ctx, 10*time.Second)
		err := c.ready(attempt)
		stop()
		if err == nil {
			return nil
		}
		if n%10 == 0 && !c.running(ctx) {
			return fmt.Errorf("the container has ended; before that: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", err)
		case <-tick.C:
		}
	}
}

func (c *Container) running(ctx context.Context) bool {
	running := false
	err := docker(func(p *testcontainers.DockerProvider) error {
		r, err := p.Client().ContainerInspect(ctx, c.ctr.GetContainerID(), client.ContainerInspectOptions{})
		running = err == nil && r.Container.State != nil && r.Container.State.Running
		return err
	})
	return err != nil || running // when Docker does not say, it is no proof of an end
}

// do runs one request about the container.
func (c *Container) do(t testing.TB, what string, f func(ctx context.Context, cli client.APIClient, id string) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := docker(func(p *testcontainers.DockerProvider) error { return f(ctx, p.Client(), c.id(t)) })
	if err != nil {
		t.Fatalf("env: %s: %v", what, err)
	}
}

func (c *Container) id(t testing.TB) string {
	t.Helper()
	if c.ctr == nil {
		t.Fatal("env: this server was given by URL: only a server in a container can be interfered with")
	}
	return c.ctr.GetContainerID()
}

// ID is the container's, for commands of Docker's.
func (c *Container) ID(t testing.TB) string {
	t.Helper()
	return c.id(t)
}

// Pause freezes the server: its connections stay open and nothing answers.
func (c *Container) Pause(t testing.TB) {
	t.Helper()
	c.do(t, "pause", func(ctx context.Context, cli client.APIClient, id string) error {
		for {
			_, err := cli.ContainerPause(ctx, id, client.ContainerPauseOptions{})
			// Processes that are being made at that moment can escape the freezer, which then gives up and thaws all.
			if err == nil || !strings.Contains(err.Error(), "unable to freeze") || ctx.Err() != nil {
				return err
			}
		}
	})
}

// Unpause ends a Pause.
func (c *Container) Unpause(t testing.TB) {
	t.Helper()
	c.do(t, "unpause", func(ctx context.Context, cli client.APIClient, id string) error {
		_, err := cli.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		return err
	})
}

// Kill ends the server the way a power cut does. Start brings it back with its data.
func (c *Container) Kill(t testing.TB) {
	t.Helper()
	c.do(t, "kill", func(ctx context.Context, cli client.APIClient, id string) error {
		_, err := cli.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "SIGKILL"})
		if err != nil {
			return err
		}
		wait := cli.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case <-wait.Result:
			return nil
		case err := <-wait.Error:
			return err
		}
	})
}

// Stop ends the server in an orderly way. Start brings it back with its data.
func (c *Container) Stop(t testing.TB) {
	t.Helper()
	c.do(t, "stop", func(ctx context.Context, cli client.APIClient, id string) error {
		grace := 60
		_, err := cli.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: &grace})
		return err
	})
}

// Start starts a server that was stopped or killed, and waits until it is ready.
func (c *Container) Start(t testing.TB) {
	t.Helper()
	c.StartNoWait(t)
	c.Await(t)
}

// StartNoWait starts a server that was stopped or killed without waiting for it: a member of a cluster that has lost
// its majority is not ready before the others are back.
func (c *Container) StartNoWait(t testing.TB) {
	t.Helper()
	c.do(t, "start", func(ctx context.Context, cli client.APIClient, id string) error {
		_, err := cli.ContainerStart(ctx, id, client.ContainerStartOptions{})
		return err
	})
}

// Await waits until the server is ready.
func (c *Container) Await(t testing.TB) {
	t.Helper()
	if err := c.await(context.Background()); err != nil {
		t.Fatalf("env: %v\n%s", err, c.tail())
	}
}

// Restart stops the server in an orderly way, starts it again and waits until it is ready.
func (c *Container) Restart(t testing.TB) {
	t.Helper()
	c.do(t, "restart", func(ctx context.Context, cli client.APIClient, id string) error {
		grace := 60
		_, err := cli.ContainerRestart(ctx, id, client.ContainerRestartOptions{Timeout: &grace})
		return err
	})
	c.Await(t)
}

// Exec runs a command inside the container and returns what it printed. A status other than 0 ends the test.
func (c *Container) Exec(t testing.TB, cmd ...string) string {
	t.Helper()
	c.id(t)
	out, err := c.exec(cmd...)
	if err != nil {
		t.Fatalf("env: %s: %v", strings.Join(cmd, " "), err)
	}
	return out
}

func (c *Container) exec(cmd ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer func() { _ = c.close() }() // of idle connections to the engine
	code, r, err := c.ctr.Exec(ctx, cmd, exec.Multiplexed())
	if err != nil {
		return "", err
	}
	out, err := io.ReadAll(r)
	if err != nil {
		return "", err
	}
	if code != 0 {
		return "", fmt.Errorf("status %d: %s", code, out)
	}
	return string(out), nil
}

// IP is the container's address on Docker's default network, where other containers reach it.
func (c *Container) IP(t testing.TB) string {
	t.Helper()
	var ip string
	c.do(t, "inspect", func(ctx context.Context, cli client.APIClient, id string) error {
		r, err := cli.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if err != nil {
			return err
		}
		if e := r.Container.NetworkSettings.Networks["bridge"]; e != nil {
			ip = e.IPAddress.String()
			return nil
		}
		return errors.New("not on the default network")
	})
	return ip
}

// tail is the end of the server's log, for messages.
func (c *Container) tail() string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var text string
	_ = docker(func(p *testcontainers.DockerProvider) error {
		r, err := p.Client().ContainerLogs(ctx, c.ctr.GetContainerID(),
			client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "40"})
		if err != nil {
			return err
		}
		defer r.Close()
		b, err := io.ReadAll(io.LimitReader(r, 16<<10))
		text = string(b)
		return err
	})
	return "the end of its log:\n" + text
}

// remove ends the container and deletes what it stored.
func (c *Container) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return docker(func(p *testcontainers.DockerProvider) error {
		return removeContainer(ctx, p.Client(), c.ctr.GetContainerID())
	})
}

func removeContainer(ctx context.Context, cli client.APIClient, id string) error {
	// Some engines do not remove a paused container.
	_, _ = cli.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	_, err := cli.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	return err
}

// start is run for one test: the container ends with it.
func start(t testing.TB, s spec) *Container {
	t.Helper()
	c, err := run(context.Background(), s)
	if err != nil {
		unavailable(t, s.name, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: %s", s.name, c.tail())
		}
		if err := c.remove(); err != nil {
			t.Errorf("env: removing %s: %v", s.name, err)
		}
	})
	return c
}

// unavailable ends the test and says what to do about it.
func unavailable(t testing.TB, name string, err error) {
	t.Helper()
	t.Fatalf(`env: %s cannot be started: %v

Integration tests need real servers. Either
  - run "make docker images" once: it makes sure of a Docker daemon and of the container images, or
  - name a server of your own in ASHLAR_TEST_POSTGRES_URL, ASHLAR_TEST_ETCD_URL or ASHLAR_TEST_DYNAMODB_URL
    (tests that restart or cut off servers still need Docker).
"make test-unit" runs what needs neither.`, name, err)
}
