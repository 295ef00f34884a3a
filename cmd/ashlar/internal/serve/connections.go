package serve

import (
	"cmp"
	"net"

	"golang.org/x/net/netutil"
)

// maxConnections bounds the default limit of an address. A connection takes some 50 kB.
const maxConnections = 10_000

// limitConnections returns a listener that accepts a connection only while fewer than the configured number are open. Further ones wait in the queue of
// the operating system. The default is a third of the file descriptors that the process may open: a third remains for the second address, and a
// third for the store and the probes.
func (c *Config) limitConnections(l net.Listener) net.Listener {
	return netutil.LimitListener(l, cmp.Or(c.MaxConnections, max(1, int(min(maxConnections, fileLimit()/3)))))
}
