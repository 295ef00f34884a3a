//go:build integration

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// frozenWriter is a handle whose link stops after a part of a request, as if its process was frozen while it sent, and one that is not affected.
type frozenWriter struct {
	proxy         *faultproxy.Proxy
	frozen, other *Backend
}

func newFrozenWriter(t *testing.T, ctx context.Context) *frozenWriter {
	t.Helper()
	server := env.Postgres(t)
	schema := server.Schema(t)
	proxy := faultproxy.New(t, server.Addr)
	return &frozenWriter{proxy, openHandle(t, ctx, server.At(t, proxy.Addr()).StoreURLIn(t, schema)), openHandle(t, ctx, server.StoreURLIn(t, schema))}
}

// freeze calls send, and stops its link after a second, when a part of the request has arrived. The link needs some seconds for the request.
func (w *frozenWriter) freeze(send func() error) (done <-chan error) {
	w.proxy.SetRate(128 << 10)
	result := make(chan error, 1)
	go func() { result <- send() }()
	<-time.After(time.Second)
	w.proxy.Stall()
	return result
}

func (w *frozenWriter) resume() {
	w.proxy.SetRate(0)
	w.proxy.Resume()
}

// TestHalfSentCreation freezes a handle while it sends a large creation. Others can create the resource meanwhile.
func TestHalfSentCreation(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	w := newFrozenWriter(t, ctx)
	createdResource(t, ctx, w.frozen, "prepared")
	large := orderResource("one", "")
	large.Data = &anypb.Any{TypeUrl: "example.com/t", Value: make([]byte, 1<<20-1000)}
	done := w.freeze(func() error { _, err := w.frozen.WriteCAS(ctx, large); return err })
	short, stop := context.WithTimeout(ctx, 3*time.Second)
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
	done := w.freeze(func() error { return w.frozen.handle.carryOut(ctx, ms, func() {}) })
	short, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	createdResource(t, ctx, w.other, "other")
	if _, err := w.other.List(short, storage.StrongConsistency, orderType, &resourcepb.Tenancy{}, ""); err != nil {
		t.Errorf("a list beside a batch that was sent in part: %v", err)
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
