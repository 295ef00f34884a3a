package driver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

func TestUnreachableNamesAddressAndReason(t *testing.T) {
	t.Parallel()
	refused := func(port int) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	unknown := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "db.example"}}
	late := fmt.Errorf("%w: %w: %w", storage.ErrInconsistent, context.DeadlineExceeded, refused(1))
	for _, c := range []struct {
		name string
		err  error
		want string // "" for the unchanged error
	}{
		{"a refused connection", refused(5432), "cannot reach the database at 127.0.0.1:5432: connection refused"},
		{"a refused connection at the deadline", late, "cannot reach the database at 127.0.0.1:1: connection refused"},
		{"two attempts at one server", errors.Join(refused(1), refused(1)), "cannot reach the database at 127.0.0.1:1: connection refused"},
		{"two servers", errors.Join(refused(1), refused(2)), "cannot reach the database at 127.0.0.1:1, 127.0.0.1:2: connection refused"},
		{
			"two reasons", errors.Join(refused(1), unknown),
			"cannot reach the database at 127.0.0.1:1: connection refused; db.example: no such host",
		},
		{"a server that answers as well", errors.Join(refused(1), errors.New("the password is wrong")), ""},
		{"a broken connection", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, ""},
		{"a deadline alone", fmt.Errorf("%w: %w", storage.ErrInconsistent, context.DeadlineExceeded), ""},
		{"a server that answers late as well", errors.Join(refused(1), lateAnswer{}), ""},
		{"an error that has the text already", driver.Unreachable(refused(1)), ""},
	} {
		err := driver.Unreachable(c.err)
		switch {
		case !errors.Is(err, c.err):
			t.Errorf("%s: %v does not match the original error", c.name, err)
		case c.want == "" && err != c.err:
			t.Errorf("%s: Unreachable returned %q, expected the unchanged error", c.name, err)
		case c.want != "" && err.Error() != c.want:
			t.Errorf("%s: Unreachable returned %q, expected %q", c.name, err, c.want)
		case c.want != "" && !errors.Is(err, storage.ErrInconsistent):
			t.Errorf("%s: the error does not match ErrInconsistent", c.name)
		}
	}
	if driver.Unreachable(nil) != nil {
		t.Error("Unreachable returned an error for nil")
	}
	if !errors.Is(driver.Unreachable(late), context.DeadlineExceeded) {
		t.Error("the error at the deadline does not match context.DeadlineExceeded")
	}
}

// lateAnswer matches context.DeadlineExceeded by its Is method, as the timeouts of package net do.
type lateAnswer struct{}

func (lateAnswer) Error() string        { return "the answer is late" }
func (lateAnswer) Is(target error) bool { return target == context.DeadlineExceeded }

// A connection that the operating system refuses, as a dialer reports it.
func TestUnreachableClosedPort(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	_, err = net.Dial("tcp", address)
	if got, want := driver.Unreachable(err).Error(), "cannot reach the database at "+address+": connection refused"; got != want {
		t.Errorf("the error is %q, expected %q", got, want)
	}
}
