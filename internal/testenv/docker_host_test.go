//go:build integration

package testenv

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

func TestAccepted(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := accepted(context.Background(), addr, time.Minute); err != nil {
		t.Errorf("somebody listens at %s: %v", addr, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	err = accepted(context.Background(), addr, 300*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("nobody listens at %s: got %v, expected an error that names the address", addr, err)
	}
}

// The daemon of these tests may be elsewhere; where its socket and its name are this machine's, so are its ports.
func TestPublishedAt(t *testing.T) {
	t.Parallel()
	c := start(t, postgresSpec())
	if err := accepted(context.Background(), c.Addr, reachPatience); err != nil {
		t.Error(err)
	}
}
