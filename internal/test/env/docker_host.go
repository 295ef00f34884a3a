//go:build integration

package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// publishedHost returns the address where the daemon publishes ports, and the host name or address that this process uses to reach
// it: loopback if the daemon runs on this machine.
func publishedHost(ctx context.Context, p *testcontainers.DockerProvider) (host string, onThisMachine bool, err error) {
	host, err = p.DaemonHost(ctx)
	if err != nil {
		return "", false, err
	}
	if os.Getenv("TESTCONTAINERS_HOST_OVERRIDE") != "" {
		return host, ours(host), nil
	}
	if ours(host) || sameMachine(ctx, p.Client()) {
		return "127.0.0.1", true, nil
	}
	return host, false, nil
}

// ours reports whether host is an address of this machine.
func ours(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	addrs, err := net.InterfaceAddrs()
	if ip == nil || err != nil {
		return false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}

// sameMachine reports whether the daemon behind a local socket has the name of this machine. testcontainers concludes from a file
// /.dockerenv that it runs inside a container, and expects the daemon at the gateway. Both are wrong on a machine that was made
// from a container's image. In a real container the daemon has another name.
func sameMachine(ctx context.Context, cli client.APIClient) bool {
	if u, err := url.Parse(cli.DaemonHost()); err != nil || u.Scheme != "unix" {
		return false
	}
	name, err := os.Hostname()
	if err != nil {
		return false
	}
	daemon, err := cli.Info(ctx, client.InfoOptions{})
	return err == nil && daemon.Info.Name == name
}

// publishedPorts knows whether this process can reach the ports that Docker publishes.
type publishedPorts struct {
	reachable   atomic.Bool           // a port accepted a connection, so the others can
	unreachable atomic.Pointer[error] // the reason why none can be reached: the first container spares the others the wait
}

var ports publishedPorts

// reachTimeout is how long a published port may refuse connections. Without Docker's proxy, it does until the server in the container listens,
// which takes more than 20 seconds on a slow machine.
const reachTimeout = 2 * time.Minute

// reach waits until a published port accepts connections. It fails if the container has ended.
func (p *publishedPorts) reach(ctx context.Context, addr string, running func(ctx context.Context) bool) error {
	if known := p.unreachable.Load(); known != nil {
		return *known
	}
	err := awaitAccept(ctx, addr, reachTimeout, running)
	switch {
	case err == nil:
		p.reachable.Store(true)
	case ctx.Err() == nil && !errors.Is(err, errEnded) && !p.reachable.Load():
		err = fmt.Errorf("no published port of Docker can be reached: %w; "+
			"if the daemon has another address, name it in TESTCONTAINERS_HOST_OVERRIDE", err)
		p.unreachable.CompareAndSwap(nil, &err)
	}
	return err
}

// errEnded reports the end of a container.
var errEnded = errors.New("the container has ended")

// awaitAccept waits until an address accepts connections. It fails if the container has ended.
func awaitAccept(ctx context.Context, addr string, timeout time.Duration, running func(ctx context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var refusal error
	for n := 1; ; n++ {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		if refusal == nil || ctx.Err() == nil { // the last attempt ends with the context, and only reports that
			refusal = err
		}
		if n%10 == 0 && !running(ctx) {
			return fmt.Errorf("%w; before that: %w", errEnded, refusal)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("no connection was accepted at %s: %w", addr, refusal)
		}
	}
}
