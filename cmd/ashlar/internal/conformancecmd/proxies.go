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

// faultProxies is the faultProxies from the clients under faults to the database: a proxy in front of each address that they connect to.
type faultProxies struct {
	requests []string // see scratch.Space

	mu           sync.Mutex
	byAddress    map[string]*proxy.Proxy
	all          []*proxy.Proxy
	usesTLS      bool
	bypassReason string // why connections do not lead through a proxy; "" if they do
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
		w.bypassReason = "the connection is a Unix socket, where no proxy can stand in between"
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

// proxyFor returns the proxy in front of an address. One that cannot be reached gets none, so that a client with several to choose
// from is told at once.
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
	_ = conn.Close() // it was reached
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

// tlsDetector is a connection that reports whether it is encrypted.
type tlsDetector struct {
	net.Conn
	proxies *faultProxies
}

// Write sees the record in which TLS begins. Nothing else that is spoken here begins so.
func (c *tlsDetector) Write(b []byte) (int, error) {
	if len(b) > 5 && b[0] == 0x16 && b[1] == 3 {
		c.proxies.mu.Lock()
		c.proxies.usesTLS = true
		c.proxies.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// harness opens the store once, to see where its connections lead, and makes the harness. Every other handle is in a process of its
// own, unless the store is in memory.
func (w *faultProxies) harness(ctx context.Context, storeURL, crashCommand string) (faults.Harness, error) {
	open := func(ctx context.Context) (storage.Backend, error) {
		return storage.Open(dial.With(ctx, w.dial), storeURL)
	}
	h := faults.Harness{
		Open:   open,
		Around: func(ctx context.Context) (storage.Backend, error) { return storage.Open(ctx, storeURL) },
		Exempt: map[faults.Kind]string{},
		// A server that joins later has a proxy that stays until the end.
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
		h.Exempt[kind] = "it takes who runs the server"
	}
	w.addConnectionFaults(&h)
	for _, kind := range []faults.Kind{faults.KillClient, faults.FreezeClient} {
		h.Exempt[kind] = "no other process can use the store, or the system cannot do it"
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
	h.Exempt[faults.KillServer] = "there is no --crash-command"
	if crashCommand != "" {
		addFaults(&h, crashFault(crashCommand, h.Around))
	}
	return h, nil
}

// addFaults has the database suffer something.
func addFaults(h *faults.Harness, more ...faults.Fault) {
	for _, f := range more {
		delete(h.Exempt, f.Kind)
		h.Faults = append(h.Faults, f)
	}
}

// addConnectionFaults adds the faults of the addConnectionFaults that there are.
func (w *faultProxies) addConnectionFaults(h *faults.Harness) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kinds := []faults.Kind{faults.Cut, faults.Delay, faults.Throttle, faults.LoseAnswer}
	if len(w.all) == 0 {
		if w.bypassReason == "" {
			w.bypassReason = "there is no connection"
		}
		for _, kind := range kinds {
			h.Exempt[kind] = w.bypassReason
		}
		return
	}
	for i, f := range faults.Connection(w.all[0], w.requests...) {
		if f.Kind == faults.LoseAnswer && w.usesTLS {
			h.Exempt[f.Kind] = "connections are encrypted, so that requests cannot be told apart on the way"
			continue
		}
		f.Inject = func(ctx context.Context, random *rand.Rand) (func(context.Context) error, error) {
			return faults.Connection(w.pick(random), w.requests...)[i].Inject(ctx, random)
		}
		addFaults(h, f)
	}
}

// pick is one of the proxies.
func (w *faultProxies) pick(random *rand.Rand) *proxy.Proxy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[random.IntN(len(w.all))]
}

// crashFault is the fault that a command of the user's brings about. It is over when the database answers.
func crashFault(command string, open func(context.Context) (storage.Backend, error)) faults.Fault {
	return faults.Fault{Kind: faults.KillServer, Weight: 2, Touches: "server", Inject: func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) {
		var said bytes.Buffer
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Stdout, cmd.Stderr = &said, &said
		cmd.WaitDelay = 5 * time.Second // for what it has left running, which holds its output
		if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			return nil, fmt.Errorf("--crash-command: %w: %s", err, bytes.TrimSpace(said.Bytes()))
		}
		return nil, awaitAnswer(ctx, open)
	}}
}

// awaitAnswer returns when the database answers a strong read.
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
