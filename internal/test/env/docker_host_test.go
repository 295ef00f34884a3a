//go:build integration

package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAccepted(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	if err := awaitAccept(context.Background(), addr, time.Minute, alive); err != nil {
		t.Errorf("a listening address, %s: %v", addr, err)
	}
	addr = silent(t)
	err = awaitAccept(context.Background(), addr, 300*time.Millisecond, alive)
	if err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("an address without listener, %s: got %v, expected an error with the address", addr, err)
	}
}

func alive(context.Context) bool { return true }

// A container that ends, or whose start was canceled, says nothing about the ports of the others.
func TestFailedContainerBlocksNoOther(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	var p publishedPorts
	if err := p.reach(canceled, silent(t), alive); err == nil {
		t.Error("a port without listener was reached")
	}
	err = p.reach(context.Background(), silent(t), func(context.Context) bool { return false })
	if !errors.Is(err, errEnded) {
		t.Errorf("got %v, expected the end of the container", err)
	}
	if err := p.reach(context.Background(), l.Addr().String(), alive); err != nil {
		t.Errorf("a listening address after two failures of others: %v", err)
	}
}

// silent returns an address without a listener. The port is taken until the test ends.
func silent(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Close(fd); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// The daemon of these tests may be remote. If its socket and name are this machine's, its ports are too.
func TestPublishedAt(t *testing.T) {
	t.Parallel()
	c := start(t, postgresSpec())
	if err := awaitAccept(context.Background(), c.Addr, reachTimeout, c.running); err != nil {
		t.Error(err)
	}
}
