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

// startTimeout bounds every wait of this package. It is far longer than a loaded machine with two cores needs.
const startTimeout = 3 * time.Minute

func init() {
	// Ryuk would be one more image to provide; owner labels replace it (see sweep.go).
	if os.Getenv("TESTCONTAINERS_RYUK_DISABLED") == "" {
		_ = os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	}
	log.SetDefault(log.NewNoopLogger())
}

// Container is a running server in a container. Its methods fail the test if Docker fails.
type Container struct {
	// Addr is the address of the server, as host:port. A restart does not change it.
	Addr string

	ctr   testcontainers.Container
	close func() error                // closes the connections that methods of ctr leave open
	ready func(context.Context) error // one attempt to reach the server
}

// spec describes a container.
type spec struct {
	name    string // for messages
	image   string
	env     map[string]string
	cmd     []string
	entry   []string
	port    int // the server's port inside the container
	files   []testcontainers.ContainerFile
	volumes []string              // as in docker run -v
	tmpfs   map[string]string     // options of file systems in memory, by path
	peers   string                // id of a network to join, besides the one that publishes the port
	aliases []string              // names on that network
	command func(string) []string // cmd, if it depends on the address
	wait    bool                  // whether to wait until the server is ready
	ready   func(ctx context.Context, addr string) error
}

// docker calls f with a connection to the daemon. It closes the connection afterwards, because a test that looks for leaked
// goroutines would find it.
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
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
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
		host, local, err := publishedHost(ctx, p)
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
		if err = ports.reach(ctx, c.Addr, c.running); err == nil {
			err = c.await(ctx)
		}
	}
	if err == nil {
		return c, false, nil
	}
	// Another process may have taken the port since it was chosen.
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

// freePort chooses a free port outside of the kernel's range for outgoing connections, so that it is unlikely to be taken while a
// server restarts.
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

// await waits until the server is ready. It fails if the container ends.
func (c *Container) await(ctx context.Context) error {
	if c.ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
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
			return fmt.Errorf("%w; before that: %w", errEnded, err)
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
	return err != nil || running // an error of Docker does not prove an end
}

// do runs one request for the container.
func (c *Container) do(t testing.TB, what string, f func(ctx context.Context, cli client.APIClient, id string) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := docker(func(p *testcontainers.DockerProvider) error { return f(ctx, p.Client(), c.id(t)) })
	if err != nil {
		t.Fatalf("env: %s: %v", what, err)
	}
}

func (c *Container) id(t testing.TB) string {
	t.Helper()
	if c.ctr == nil {
		t.Fatal("env: this server was given by URL: only a server in a container can be disturbed")
	}
	return c.ctr.GetContainerID()
}

// ID returns the container's id, for commands of Docker.
func (c *Container) ID(t testing.TB) string {
	t.Helper()
	return c.id(t)
}

// Pause suspends the server: its connections stay open and do not answer.
func (c *Container) Pause(t testing.TB) {
	t.Helper()
	c.do(t, "pause", func(ctx context.Context, cli client.APIClient, id string) error {
		for {
			_, err := cli.ContainerPause(ctx, id, client.ContainerPauseOptions{})
			// Processes that are being created at that moment can escape the freezer, which then fails and resumes all.
			if err == nil || !strings.Contains(err.Error(), "unable to freeze") || ctx.Err() != nil {
				return err
			}
		}
	})
}

// Unpause resumes a paused server.
func (c *Container) Unpause(t testing.TB) {
	t.Helper()
	c.do(t, "unpause", func(ctx context.Context, cli client.APIClient, id string) error {
		_, err := cli.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		return err
	})
}

// Kill ends the server like a power cut. Start restarts it with its data.
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

// Stop shuts the server down. Start restarts it with its data.
func (c *Container) Stop(t testing.TB) {
	t.Helper()
	c.do(t, "stop", func(ctx context.Context, cli client.APIClient, id string) error {
		grace := 60
		_, err := cli.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: &grace})
		return err
	})
}

// Start starts a stopped or killed server, and waits until it is ready.
func (c *Container) Start(t testing.TB) {
	t.Helper()
	c.StartNoWait(t)
	c.Await(t)
}

// StartNoWait starts a stopped or killed server without waiting: a member of a cluster without a majority is not ready before the
// others are back.
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

// Restart shuts the server down, starts it again and waits until it is ready.
func (c *Container) Restart(t testing.TB) {
	t.Helper()
	c.do(t, "restart", func(ctx context.Context, cli client.APIClient, id string) error {
		grace := 60
		_, err := cli.ContainerRestart(ctx, id, client.ContainerRestartOptions{Timeout: &grace})
		return err
	})
	c.Await(t)
}

// Exec runs a command in the container and returns its output. A nonzero status fails the test.
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
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	defer func() { _ = c.close() }() // closes idle connections to the engine
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

// IP returns the container's address on Docker's default network, where other containers reach it.
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

// tail returns the end of the server's log, for messages.
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

// remove ends the container and deletes its data.
func (c *Container) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
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

// start runs a container for one test and removes it at the test's end.
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

// unavailable fails the test with instructions.
func unavailable(t testing.TB, name string, err error) {
	t.Helper()
	t.Fatalf(`env: %s cannot be started: %v

Integration tests need real servers. Either
  - run "make docker images" once: it makes sure of a Docker daemon and of the container images, or
  - name a server of your own in ASHLAR_TEST_POSTGRES_URL, ASHLAR_TEST_ETCD_URL or ASHLAR_TEST_DYNAMODB_URL
    (tests that restart or cut off servers still need Docker).
"make test-unit" runs what needs neither.`, name, err)
}
