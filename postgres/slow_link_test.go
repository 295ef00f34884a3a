//go:build integration

package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// slowly opens a store through its own link with this rate in bytes a second.
func slowly(t *testing.T, server *env.PostgresServer, schema string, rate int) storage.Backend {
	t.Helper()
	proxy := faultproxy.New(t, server.Addr)
	b := fixture.Open(t, server.At(t, proxy.Addr()).StoreURLIn(t, schema))
	proxy.SetRate(rate)
	return b
}

// large returns an incompressible resource of about this size.
func large(name string, size int) *resourcepb.Resource {
	res := fixture.Resource(name, "")
	payload := make([]byte, size)
	for i, state := 0, uint32(len(name)+size); i < size; i++ {
		state = state*1664525 + 1013904223
		payload[i] = byte(state >> 24)
	}
	res.Data = &anypb.Any{TypeUrl: "example.com/t", Value: payload}
	return res
}

// TestSlowLink sends, over a link of 2 Mbit/s, more than a page of history by rows could transfer before its timeout. An open watch
// and a resumed one return everything, because pages of history are limited in bytes.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	const rate, size, count = 2_000_000 / 8, 200_000, 24
	server := env.Postgres(t)
	schema := server.Schema(t)
	fast := fixture.Open(t, server.StoreURLIn(t, schema))
	polls := fixture.WatchAll(t, slowly(t, server, schema, rate))
	endOfSnapshot(t, polls)
	cursor := polls.Cursor()
	var want []*resourcepb.Resource
	for i := range count {
		want = append(want, fixture.Write(t, fast, large(fmt.Sprint("large-", i), size)))
	}
	resumes := resume(t, slowly(t, server, schema, rate), cursor)
	var group sync.WaitGroup
	for name, w := range map[string]storage.Watch{"a watch that was open": polls, "a watch that resumes": resumes} {
		group.Go(func() { takesAll(t, name, w, want, max(fixture.Timeout, 3*count*size/rate*time.Second)) })
	}
	group.Wait()
}

// takesAll reads the events of these writes, in any order of keys, within a time.
func takesAll(t *testing.T, name string, w storage.Watch, want []*resourcepb.Resource, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	left := map[string]*resourcepb.Resource{}
	for _, res := range want {
		left[res.Version] = res
	}
	for len(left) > 0 {
		event, err := w.Next(ctx)
		if err != nil {
			t.Errorf("%s: %d of %d events are missing: %v", name, len(left), len(want), err)
			return
		}
		got := event.GetUpsert().GetResource()
		if res := left[got.GetVersion()]; res == nil || !bytes.Equal(res.Data.Value, got.Data.Value) {
			t.Errorf("%s: an unexpected event: %v at %s", name, got.GetId(), got.GetVersion())
			return
		}
		delete(left, got.Version)
	}
}

// TestSlowLinkReads reads many large resources concurrently over 10 MiB/s: together they take longer than one attempt may.
func TestSlowLinkReads(t *testing.T) {
	t.Parallel()
	const rate, size, count = 10 << 20, 1<<20 - 1000, 64
	server := env.Postgres(t)
	schema := server.Schema(t)
	fast := fixture.Open(t, server.StoreURLIn(t, schema))
	slow := slowly(t, server, schema, rate)
	var want []*resourcepb.Resource
	for i := range count {
		want = append(want, fixture.Write(t, fast, large(fmt.Sprint("large-", i), size)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), fixture.Timeout)
	defer cancel()
	errs := make(chan error, count)
	for _, res := range want {
		go func() {
			got, err := slow.Read(ctx, storage.StrongConsistency, res.Id)
			if err == nil && !bytes.Equal(got.Data.Value, res.Data.Value) {
				err = fmt.Errorf("read %s: not the written resource", res.Id.Name)
			}
			errs <- err
		}()
	}
	failed := 0
	for range count {
		if err := <-errs; err != nil {
			if failed++; failed == 1 {
				t.Error(err)
			}
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d reads failed", failed, count)
	}
}

// TestSlowLinkWrites writes the largest resources over links so slow that a statement takes longer than the initial attempt
// timeout.
func TestSlowLinkWrites(t *testing.T) {
	t.Parallel()
	const size = 1<<20 - 1000
	server := env.Postgres(t)
	schema := server.Schema(t)
	fast := fixture.Open(t, server.StoreURLIn(t, schema))
	one := slowly(t, server, schema, 2_000_000/8)
	created := fixture.Write(t, one, large("one", size))
	updated := fixture.Write(t, one, created)
	if got := read(t, fast, created.Id); got.Version != updated.Version {
		t.Errorf("stored is %s, written was %s", got.Version, updated.Version)
	}

	const count = 6
	many := slowly(t, server, schema, 1<<20)
	errs := make(chan error, count)
	for i := range count {
		go func() {
			_, err := many.WriteCAS(fixture.Context(t), large(fmt.Sprint("many-", i), size))
			errs <- err
		}()
	}
	for range count {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
