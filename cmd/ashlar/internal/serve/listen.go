package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// listen opens the addresses. All except the first may be empty.
func listen(ctx context.Context, addresses ...string) ([]net.Listener, error) {
	listeners := make([]net.Listener, len(addresses))
	for i, address := range addresses {
		if address == "" {
			continue
		}
		l, err := listenAt(ctx, address)
		if err != nil {
			for _, open := range listeners[:i] {
				if open != nil {
					_ = open.Close() // nothing was served there yet
				}
			}
			return nil, fmt.Errorf("listen: %w", err)
		}
		listeners[i] = l
	}
	return listeners, nil
}

// socketLockTimeout bounds the wait for another server that replaces a socket, which takes it milliseconds.
const socketLockTimeout = 10 * time.Second

// listenAt opens an address.
func listenAt(ctx context.Context, address string) (net.Listener, error) {
	network, at := networkOf(address)
	if network == "unix" { // no other server may replace the socket between the check and the start
		waitCtx, cancel := context.WithTimeout(ctx, socketLockTimeout)
		defer cancel()
		unlock, err := lockSocket(waitCtx, at)
		if err != nil {
			return nil, err
		}
		defer unlock()
		removeStale(ctx, at)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, network, at)
	if unix, ok := l.(*net.UnixListener); ok && err == nil {
		return newSocket(unix, at), nil
	}
	return l, err
}

// socket is a listener at a unix socket. Close deletes the file only if it is the listener's own: if it was deleted, another server may have made one
// of the same name, which nothing would reach afterwards.
type socket struct {
	*net.UnixListener
	path string
	file os.FileInfo // nil if the socket has no file
	end  func() error
}

func newSocket(l *net.UnixListener, path string) *socket {
	s := &socket{UnixListener: l, path: path}
	if own, err := os.Lstat(path); err == nil {
		s.file = own
		l.SetUnlinkOnClose(false)
	}
	s.end = sync.OnceValue(s.close) // later, a file of another server may have the same number
	return s
}

// Close closes the listener.
func (s *socket) Close() error { return s.end() }

func (s *socket) close() error {
	if s.file == nil {
		return s.UnixListener.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	unlock, err := lockSocket(ctx, s.path)
	if err != nil {
		return s.UnixListener.Close() // the next server removes the file
	}
	defer unlock()
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		_ = os.Remove(s.path) // otherwise the next server removes it
	}
	return s.UnixListener.Close()
}

// networkOf returns the network and the address in the flag of an address: host:port, or unix: and a path.
func networkOf(address string) (network, at string) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return "unix", path
	}
	return "tcp", address
}

const unixPrefix = "unix:"

// addressOf returns the address of a listener in the form of a flag.
func addressOf(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return unixPrefix + l.Addr().String()
	}
	return l.Addr().String()
}

// removeStale removes a socket that a killed server has left: nothing listens there.
func removeStale(ctx context.Context, path string) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return
	}
	if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close() // another server listens: listening fails with a reason
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path) // otherwise listening fails with a reason
	}
}

// nonNil returns the listeners that are not nil.
func nonNil(listeners []net.Listener) (some []net.Listener) {
	for _, l := range listeners {
		if l != nil {
			some = append(some, l)
		}
	}
	return some
}
