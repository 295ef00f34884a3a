package conformancecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/conformance/faults/proxy"
	"github.com/ashlar-dev/storage/internal/dial"
	"github.com/ashlar-dev/storage/resourcepb"
)

// faultProxies routes the connections of the clients under faults: it runs a proxy in front of each address of the database.
type faultProxies struct {
	requests []string // see scratchstore.Space

	mu           sync.Mutex
	byAddress    map[string]*proxy.Proxy
	all          []*proxy.Proxy
	usesTLS      bool
	bypassReason string // why connections bypass the proxies; "" if they do not
}

func newFaultProxies(requests []string) *faultProxies {
	return &faultProxies{requests: requests, byAddress: map[string]*proxy.Proxy{}}
}

func (w *faultProxies) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.all {
		p.Close()
	}
}

// dial connects through a proxy.
func (w *faultProxies) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if !strings.HasPrefix(network, "tcp") {
		w.mu.Lock()
		w.bypassReason = "the connection is a Unix socket, which cannot be proxied"
		w.mu.Unlock()
		return d.DialContext(ctx, network, address)
	}
	p, err := w.proxyFor(ctx, address)
	if err != nil {
		return nil, err
	}
	conn, err := d.DialContext(ctx, "tcp", p.Addr())
	if err != nil {
		return nil, err
	}
	return &tlsDetector{Conn: conn, proxies: w}, nil
}

// proxyFor returns the proxy in front of an address. It fails for an unreachable address, so that a client with several addresses learns at
// once and tries another.
func (w *faultProxies) proxyFor(ctx context.Context, address string) (*proxy.Proxy, error) {
	w.mu.Lock()
	p := w.byAddress[address]
	w.mu.Unlock()
	if p != nil {
		return p, nil
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	_ = conn.Close() // the address is reachable
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.byAddress[address]; p != nil {
		return p, nil
	}
	if p, err = proxy.New(address); err != nil {
		return nil, err
	}
	w.byAddress[address] = p
	w.all = append(w.all, p)
	return p, nil
}

// tlsDetector is a connection that detects encryption.
type tlsDetector struct {
	net.Conn
	proxies *faultProxies
}

// Write detects the first record of TLS. No other protocol used here begins with these bytes.
func (c *tlsDetector) Write(b []byte) (int, error) {
	if len(b) > 5 && b[0] == 0x16 && b[1] == 3 {
		c.proxies.mu.Lock()
		c.proxies.usesTLS = true
		c.proxies.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// harness opens the store once to learn the addresses of its connections, and returns the harness. Every second handle runs in a process of
// its own, unless the store is in memory.
func (w *faultProxies) harness(ctx context.Context, storeURL, crashCommand string) (faults.Harness, error) {
	open := func(ctx context.Context) (storage.Backend, error) {
		return storage.Open(dial.With(ctx, w.dial), storeURL)
	}
	h := faults.Harness{
		Open:   open,
		Around: func(ctx context.Context) (storage.Backend, error) { return storage.Open(ctx, storeURL) },
		Exempt: map[faults.Kind]string{},
		// A server that joins later gets a proxy that lives until the end.
		IgnoreGoroutines: []string{"github.com/ashlar-dev/storage/conformance/faults/proxy.(*Proxy).accept"},
	}
	b, err := open(ctx)
	if err != nil {
		return h, fmt.Errorf("open a store through a proxy: %w", err)
	}
	if err := b.Close(); err != nil {
		return h, fmt.Errorf("close the store: %w", err)
	}
	for _, kind := range faults.Kinds() {
		h.Exempt[kind] = "only the operator of the server can inject it"
	}
	w.addConnectionFaults(&h)
	for _, kind := range []faults.Kind{faults.KillClient, faults.FreezeClient} {
		h.Exempt[kind] = "no other process can use the store, or the system does not support it"
	}
	if !strings.HasPrefix(storeURL, "mem:") {
		processes := faults.NewProcesses(storeURL)
		opened := 0
		h.Open = func(ctx context.Context) (storage.Backend, error) {
			if opened++; opened%2 == 0 {
				return processes.Open(ctx)
			}
			return open(ctx)
		}
		addFaults(&h, processes.Faults()...)
	}
	h.Exempt[faults.KillServer] = "--crash-command is not set"
	if crashCommand != "" {
		addFaults(&h, crashFault(crashCommand, h.Around))
	}
	return h, nil
}

// addFaults adds faults to the harness.
func addFaults(h *faults.Harness, more ...faults.Fault) {
	for _, f := range more {
		delete(h.Exempt, f.Kind)
		h.Faults = append(h.Faults, f)
	}
}

// addConnectionFaults adds the faults that the existing connections allow.
func (w *faultProxies) addConnectionFaults(h *faults.Harness) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kinds := []faults.Kind{faults.Cut, faults.Delay, faults.Throttle, faults.LoseAnswer}
	if len(w.all) == 0 {
		if w.bypassReason == "" {
			w.bypassReason = "the store has no connections"
		}
		for _, kind := range kinds {
			h.Exempt[kind] = w.bypassReason
		}
		return
	}
	for i, f := range faults.Connection(w.all[0], w.requests...) {
		if f.Kind == faults.LoseAnswer && w.usesTLS {
			h.Exempt[f.Kind] = "connections are encrypted, so a proxy cannot recognize requests"
			continue
		}
		f.Inject = func(ctx context.Context, random *rand.Rand) (func(context.Context) error, error) {
			return faults.Connection(w.pick(random), w.requests...)[i].Inject(ctx, random)
		}
		addFaults(h, f)
	}
}

// pick returns a random proxy.
func (w *faultProxies) pick(random *rand.Rand) *proxy.Proxy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[random.IntN(len(w.all))]
}

// crashFault is the fault that the user's command injects. It ends when the database answers.
func crashFault(command string, open func(context.Context) (storage.Backend, error)) faults.Fault {
	return faults.Fault{Kind: faults.KillServer, Weight: 2, Touches: "server", Inject: func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) {
		var output bytes.Buffer
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Stdout, cmd.Stderr = &output, &output
		cmd.WaitDelay = 5 * time.Second // for processes that the command left running, which keep its output open
		if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			return nil, fmt.Errorf("--crash-command: %w: %s", err, bytes.TrimSpace(output.Bytes()))
		}
		return nil, awaitAnswer(ctx, open)
	}}
}

// awaitAnswer waits until the database answers a strong read.
func awaitAnswer(ctx context.Context, open func(context.Context) (storage.Backend, error)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := probe(ctx, open)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the database does not answer after --crash-command: %w", err)
		}
	}
}

func probe(ctx context.Context, open func(context.Context) (storage.Backend, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	b, err := open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = b.Read(ctx, storage.StrongConsistency, &resourcepb.ID{
		Type: &resourcepb.Type{Group: "conformance", GroupVersion: "v1", Kind: "Nothing"}, Tenancy: &resourcepb.Tenancy{}, Name: "nothing",
	})
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return err
}
