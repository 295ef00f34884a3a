package serve

import (
	"context"
	"fmt"
	"net"
)

// listen opens the addresses. All except the first may be empty.
func listen(ctx context.Context, addresses ...string) ([]net.Listener, error) {
	listeners := make([]net.Listener, len(addresses))
	for i, address := range addresses {
		if address == "" {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
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

// nonNil returns the listeners that are not nil.
func nonNil(listeners []net.Listener) (some []net.Listener) {
	for _, l := range listeners {
		if l != nil {
			some = append(some, l)
		}
	}
	return some
}
