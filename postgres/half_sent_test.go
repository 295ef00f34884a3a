//go:build integration

package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// halfConn stops after the first piece of a large request, once it is armed, as a process does that is frozen while it sends.
type halfConn struct {
	net.Conn
	*frozenWriter
}

func (c *halfConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if len(b) >= 64<<10 && c.armed.CompareAndSwap(true, false) { // activityConn writes such pieces
		close(c.stoppedCh)
		<-c.resumedCh
	}
	return n, err
}

// frozenWriter is a handle that can be frozen, and one that is not affected.
type frozenWriter struct {
	frozen, other *Backend

	armed                atomic.Bool
	stoppedCh, resumedCh chan struct{}
	resume               func()
}

func newFrozenWriter(t *testing.T, ctx context.Context) *frozenWriter {
	t.Helper()
	server := env.Postgres(t)
	schema := server.Schema(t)
	w := &frozenWriter{stoppedCh: make(chan struct{}), resumedCh: make(chan struct{})}
	w.frozen = overConnections(t, ctx, server, &Options{Schema: schema, Timeout: time.Minute}, func(conn net.Conn) net.Conn { return &halfConn{conn, w} })
	w.other = openHandle(t, ctx, server.StoreURLIn(t, schema))
	w.resume = sync.OnceFunc(func() { close(w.resumedCh) })
	t.Cleanup(w.resume)
	return w
}

// freeze calls send, and returns when the first part of its request has been sent.
func (w *frozenWriter) freeze(t *testing.T, send func() error) (done <-chan error) {
	t.Helper()
	w.armed.Store(true)
	result := make(chan error, 1)
	go func() { result <- send() }()
	select {
	case <-w.stoppedCh:
	case err := <-result:
		t.Fatalf("the request was not sent in parts: %v", err)
	}
	return result
}

// TestHalfSentCreation freezes a handle while it sends a large creation. Others can create the resource meanwhile.
func TestHalfSentCreation(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	w := newFrozenWriter(t, ctx)
	createdResource(t, ctx, w.frozen, "prepared")
	large := orderResource("one", "")
	large.Data = &anypb.Any{TypeUrl: "example.com/t", Value: make([]byte, 1<<20-1000)}
	done := w.freeze(t, func() error { _, err := w.frozen.WriteCAS(ctx, large); return err })
	short, stop := context.WithTimeout(ctx, 30*time.Second) // it would wait until resume
	defer stop()
	if _, err := w.other.WriteCAS(short, orderResource("one", "")); err != nil {
		t.Errorf("a creation beside one that was sent in part: %v", err)
	}
	w.resume()
	if err := <-done; !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("the creation that was sent in part: %v", err)
	}
}

// TestHalfSentBatch freezes a handle while it sends a batch of an update and many deletions. The strong reads of others do not wait for it.
func TestHalfSentBatch(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	w := newFrozenWriter(t, ctx)
	ms := []*mutation{mutationOf(t, driver.Write, createdResource(t, ctx, w.frozen, "updated"))}
	for i := range 255 {
		res := orderResource(fmt.Sprint("deleted-", i), "")
		res.Id.Uid = strings.Repeat("u", 200)
		res.Id.Tenancy = &resourcepb.Tenancy{Partition: strings.Repeat("p", 250), Namespace: strings.Repeat("n", 250)}
		res.Id.Name += strings.Repeat("n", 200)
		ms = append(ms, mutationOf(t, driver.Write, res))
	}
	if err := w.other.handle.carryOut(ctx, ms[1:], func() {}); err != nil {
		t.Fatal(err)
	}
	for i, m := range ms[1:] {
		res := *m.Mutation
		res.Verb, res.Version = driver.Delete, versionText(m.token)
		var err error
		if ms[i+1], err = newMutation(&res); err != nil {
			t.Fatal(err)
		}
	}
	done := w.freeze(t, func() error { return w.frozen.handle.carryOut(ctx, ms, func() {}) })
	for i := range 20 { // the server may execute what has arrived a moment later
		createdResource(t, ctx, w.other, fmt.Sprint("other-", i))
		short, stop := context.WithTimeout(ctx, 30*time.Second) // it would wait until resume
		_, err := w.other.List(short, storage.StrongConsistency, orderType, &resourcepb.Tenancy{}, "")
		stop()
		if err != nil {
			t.Fatalf("a list beside a batch that was sent in part: %v", err)
		}
	}
	w.resume()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for i, m := range ms {
		if !m.isApplied {
			t.Errorf("the mutation %d is not applied", i)
		}
	}
}
