package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// connection is the connection between a handle and its store. Nothing disturbs a nil connection.
type connection struct {
	mu    sync.Mutex
	open  chan struct{} // closed while requests and answers pass
	cuts  int           // how often it broke
	loses int           // how many answers will be lost
}

// alwaysOpen is a closed channel.
var alwaysOpen = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func isOpen(open <-chan struct{}) bool {
	select {
	case <-open:
		return true
	default:
		return false
	}
}

// stall stops the connection. The returned function ends that.
func (c *connection) stall() (resume func()) {
	open := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = open
	return func() { close(open) }
}

func (c *connection) cut(answers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts++
	c.loses = answers
}

func (c *connection) state() (open <-chan struct{}, cuts int) {
	if c == nil {
		return alwaysOpen, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.cuts
}

// pass waits until something can pass, and reports whether it does.
func (c *connection) pass(ctx context.Context) bool {
	open, _ := c.state()
	select {
	case <-open:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (c *connection) losesAnswer() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loses--
	return c.loses >= 0
}

// A remote is a handle whose requests and answers pass through a connection.
type remote struct{ *handle }

// ask carries out a request on the store once and returns the answer. If the answer is lost, it is requested again.
func ask[T any](r remote, ctx context.Context, do func(context.Context) (T, error)) (answer T, err error) {
	if r.sometimes("a late call", 100) {
		time.Sleep(2 * time.Second) //nolint:forbidigo // the way of a message
	}
	if _, bounded := ctx.Deadline(); bounded && r.sometimes("an early end", 100) {
		return answer, context.DeadlineExceeded
	}
	if r.sometimes("an outcome is unknown without a fault", 100) {
		return answer, fmt.Errorf("%w: just so", storage.ErrInconsistent)
	}
	sent := context.WithoutCancel(ctx)
	if !r.conn.pass(ctx) {
		if r.has("an abandoned write is applied later") {
			go r.land(func() { _, _ = do(sent) })
		}
		return answer, ctx.Err()
	}
	travel()
	answer, err = do(sent)
	travel()
	for r.conn.losesAnswer() {
		switch {
		case r.has("a lost answer is forgotten"):
			return do(sent)
		case r.has("a visible write counts as durable"):
			r.mu.Lock()
			defer r.mu.Unlock()
			r.volatile = len(r.log) - 1
			return answer, err
		}
		r.conn.pass(ctx)
	}
	switch {
	case r.conn.pass(ctx):
		return answer, err
	case r.has("a cancel in the commit"):
		return answer, ctx.Err()
	}
	return answer, fmt.Errorf("%w: %w", storage.ErrInconsistent, ctx.Err())
}

// travel takes the time of a message. Calls of concurrent workers overlap by it, as they do with a database.
func travel() { time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond) } //nolint:forbidigo // the way of a message

// land carries out a request that was given up.
func (r remote) land(request func()) {
	set := func(landing bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.landing = landing
	}
	r.conn.pass(context.Background())
	set(true)
	request()
	set(false)
}

func (r remote) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	return ask(r, ctx, func(ctx context.Context) (*resourcepb.Resource, error) { return r.handle.Read(ctx, c, id) })
}

func (r remote) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	return ask(r, ctx, func(ctx context.Context) (*resourcepb.Resource, error) { return r.handle.WriteCAS(ctx, res) })
}

func (r remote) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	_, err := ask(r, ctx, func(ctx context.Context) (any, error) { return nil, r.handle.DeleteCAS(ctx, id, version) })
	return err
}

func (r remote) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	return ask(r, ctx, func(ctx context.Context) ([]*resourcepb.Resource, error) { return r.handle.Commit(ctx, ops) })
}

// List is made of pages, as some adapters' are.
func (r remote) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (all []*resourcepb.Resource, err error) {
	opts := storage.ListOptions{Consistency: c, Limit: 3}
	for {
		page, err := r.ListPage(ctx, typ, tenancy, prefix, opts)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Resources...)
		if opts.Continue = page.Continue; page.Continue == "" || len(page.Resources) == 0 && r.has("an empty page is the last") {
			return all, nil
		}
	}
}

func (r remote) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string, opts storage.ListOptions) (storage.Page, error) {
	return ask(r, ctx, func(ctx context.Context) (storage.Page, error) {
		return r.handle.ListPage(ctx, typ, tenancy, prefix, opts)
	})
}

func (r remote) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	return ask(r, ctx, func(ctx context.Context) ([]*resourcepb.ID, error) { return r.handle.OwnerReferences(ctx, id) })
}

func (r remote) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	return ask(r, ctx, func(ctx context.Context) (storage.Watch, error) { return r.handle.WatchList(ctx, typ, tenancy, prefix) })
}

func (r remote) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix, cursor string) (storage.Watch, error) {
	return ask(r, ctx, func(ctx context.Context) (storage.Watch, error) {
		return r.handle.WatchFrom(ctx, typ, tenancy, prefix, cursor)
	})
}

func (r remote) Scan(ctx context.Context, span history.Range, opts history.ScanOptions) (history.ScanResult, error) {
	return ask(r, ctx, func(ctx context.Context) (history.ScanResult, error) { return r.handle.Scan(ctx, span, opts) })
}

func (r remote) Swap(ctx context.Context, swap history.Swap) (history.SwapResult, error) {
	return ask(r, ctx, func(ctx context.Context) (history.SwapResult, error) { return r.handle.Swap(ctx, swap) })
}

func (r remote) Follow(ctx context.Context, span history.Range, after int64) (history.Follower, error) {
	return ask(r, ctx, func(ctx context.Context) (history.Follower, error) { return r.handle.Follow(ctx, span, after) })
}
