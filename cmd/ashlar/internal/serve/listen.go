package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
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

// listenAt opens an address.
func listenAt(ctx context.Context, address string) (net.Listener, error) {
	network, at := networkOf(address)
	if network == "unix" { // no other server may replace the socket between the check and the start
		unlock, err := lockSocket(ctx, at)
		if err != nil {
			return nil, err
		}
		defer unlock()
		removeStale(ctx, at)
	}
	return (&net.ListenConfig{}).Listen(ctx, network, at)
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
