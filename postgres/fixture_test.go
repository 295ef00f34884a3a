//go:build integration

package postgres_test

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var (
	allTypes     = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	allTenancies = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
)

// patience is how long a test waits for what has to happen.
const patience = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

func open(t testing.TB, storeURL string) storage.Backend {
	t.Helper()
	b, err := storage.Open(testContext(t), storeURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func resource(name, payload string) *resourcepb.Resource {
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Uid: "uid-" + name, Name: name,
			Type:    &resourcepb.Type{Group: "g", GroupVersion: "v1", Kind: "Kind"},
			Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "n"},
		},
		Data: &anypb.Any{TypeUrl: "example.com/t", Value: []byte(payload)},
	}
}

func write(t testing.TB, b storage.Backend, res *resourcepb.Resource) *resourcepb.Resource {
	t.Helper()
	stored, err := b.WriteCAS(testContext(t), res)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func read(t testing.TB, b storage.Backend, id *resourcepb.ID) *resourcepb.Resource {
	t.Helper()
	res, err := b.Read(testContext(t), storage.StrongConsistency, id)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func watchAll(t testing.TB, b storage.Backend) storage.Watch {
	t.Helper()
	w, err := b.WatchList(testContext(t), allTypes, allTenancies, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func next(t testing.TB, w storage.Watch) *resourcepb.WatchEvent {
	t.Helper()
	event, err := w.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return event
}

func endOfSnapshot(t testing.TB, w storage.Watch) {
	t.Helper()
	if event := next(t, w); event.GetEndOfSnapshot() == nil {
		t.Fatalf("event %v, expected the end of the snapshot", event)
	}
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

func isInconsistent(err error) bool {
	return errors.Is(err, storage.ErrInconsistent) && errors.Is(err, context.DeadlineExceeded)
}

func isCASFailure(err error) bool { return errors.Is(err, storage.ErrCASFailure) }

// unique is a name that was not used before.
func unique() string { return "-" + cryptorand.Text() }
