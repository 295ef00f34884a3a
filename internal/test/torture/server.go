package torture

import (
	"context"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/conformance/faults/proxy"
)

// StartProxy starts a proxy for the server at an address, and returns it with the URL of a store through it.
func StartProxy(t testing.TB, storeURL, addr string) (link *proxy.Proxy, through string) {
	t.Helper()
	link, err := proxy.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	through = strings.NewReplacer(addr, link.Addr(), url.QueryEscape(addr), url.QueryEscape(link.Addr())).Replace(storeURL)
	if through == storeURL {
		t.Fatalf("%s is not in the store's URL", addr)
	}
	return link, through
}

// ProxyHarness returns a harness for a store at storeURL whose server has the address addr. Handles connect through a proxy that
// breaks connections, except for the undisturbed one. Every other handle is in a process of its own. patterns identify
// requests, as in faults.Connection.
func ProxyHarness(t testing.TB, storeURL, addr string, patterns ...string) faults.Harness {
	t.Helper()
	link, through := StartProxy(t, storeURL, addr)
	open, processes := Opener(through), faults.NewProcesses(through)
	opened := 0
	return faults.Harness{
		Open: func(ctx context.Context) (storage.Backend, error) {
			if opened++; opened%2 == 0 {
				return processes.Open(ctx)
			}
			return open(ctx)
		},
		Around: Opener(storeURL),
		Faults: append(faults.Connection(link, patterns...), processes.Faults()...),
		Exempt: map[faults.Kind]string{},
		// The client that disturbs containers keeps connections to the Docker daemon.
		IgnoreGoroutines: []string{"net/http.(*persistConn).readLoop", "net/http.(*persistConn).writeLoop"},
	}
}

// Compact is a fault: the database discards its history. It never overlaps with another fault of the server.
func Compact(compact func(ctx context.Context) error) faults.Fault {
	return faults.Fault{Kind: faults.Compact, Weight: 2, Touches: "server", Inject: func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) {
		return nil, compact(ctx)
	}}
}

// Reopen shortens the history of a store as an operator does: it opens a handle at a URL with short retention, and another at a URL
// that lets history grow again.
func Reopen(urls ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for _, u := range urls {
			b, err := storage.Open(ctx, u)
			if err != nil {
				return err
			}
			if err := b.Close(); err != nil {
				return err
			}
		}
		return nil
	}
}

// Opener opens a store by its URL.
func Opener(storeURL string) func(ctx context.Context) (storage.Backend, error) {
	return func(ctx context.Context) (storage.Backend, error) { return storage.Open(ctx, storeURL) }
}

// Once is a fault that is over when begin returns, Lasting one that end ends. Both disturb the server, so only one runs at a time.
func Once(kind faults.Kind, weight int, begin func()) faults.Fault {
	return Lasting(kind, weight, begin, nil)
}

// Long makes a fault last so long that calls reach their deadlines and servers their timeouts.
func Long(f faults.Fault) faults.Fault {
	f.Hold = 8 * time.Second
	return f
}

// Lasting is a fault that lasts until end is called.
func Lasting(kind faults.Kind, weight int, begin, end func()) faults.Fault {
	return faults.Fault{Kind: kind, Weight: weight, Touches: "server", Inject: func(context.Context, *rand.Rand) (func(context.Context) error, error) {
		begin()
		if end == nil {
			return nil, nil
		}
		return func(context.Context) error { end(); return nil }, nil
	}}
}
