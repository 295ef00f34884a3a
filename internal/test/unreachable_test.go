package test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// If the database is down, the error must name the address that refused the connection. The adapters report that in the same words.
func TestClosedPort(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	want := "cannot reach the database at " + address + ": connection refused"
	for scheme, rawURL := range map[string]string{
		"postgres": "postgres://user:password@" + address + "/database",
		"etcd":     "etcd://" + address + "/prefix",
		"dynamodb": "dynamodb://table?region=us-east-1&endpoint=http://" + address,
	} {
		t.Run(scheme, func(t *testing.T) {
			b, err := storage.Open(fixture.CallTimeout(t.Context(), t, 3*time.Second), rawURL)
			if b != nil || !errors.Is(err, storage.ErrInconsistent) {
				t.Fatalf("Open returned %v and %v, expected no backend and ErrInconsistent", b, err)
			}
			if !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), storage.ErrInconsistent.Error()) {
				t.Errorf("the error is %q, expected the end %q", err, want)
			}
		})
	}
}
