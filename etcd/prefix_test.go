//go:build integration

package etcd_test

import (
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Stores whose prefixes are prefixes of each other's keys do not see each other's resources.
func TestNestedPrefixes(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	prefix := server.Prefix(t)
	var stores []*etcd.Backend
	for _, p := range []string{prefix, prefix + "/r", prefix + "//r", prefix + "/catalog/Service"} {
		b := open(t, server.StoreURLIn(t, p))
		fixture.Write(t, b, service("s"))
		stores = append(stores, b)
	}
	all := storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	for i, b := range stores {
		w := fixture.WatchChanges(t, b)
		list, err := b.List(fixture.Context(t), storage.StrongConsistency, all, tenancy, "")
		if err != nil || len(list) != 1 {
			t.Errorf("store %d lists %d resources, %v; want 1", i, len(list), err)
		}
		wantNext(t, w, upserted(fixture.Write(t, b, service("t"))))
		fixture.Remove(t, b, fixture.Stored(t, b, service("t").Id))
	}
}

// No operation changes keys outside the prefix of the store.
func TestNothingOutsideThePrefix(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t)
	client := server.Client(t)
	for _, key := range []string{"a", "store", "store.", "store0", "z"} {
		if _, err := client.Put(fixture.Context(t), key, "mine"); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, server.StoreURLIn(t, "store"))
	w := fixture.WatchChanges(t, b)
	owned := service("a")
	owned.Owner = service("owner").Id
	res := fixture.Write(t, b, owned)
	if _, err := b.Commit(fixture.Context(t), []storage.Op{{Write: service("b")}, {Delete: res.Id, Version: res.Version}}); err != nil {
		t.Fatal(err)
	}
	fixture.Remove(t, b, fixture.Stored(t, b, service("b").Id))
	w.Close()

	resp, err := client.Get(fixture.Context(t), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	outside := 0
	for _, kv := range resp.Kvs {
		if strings.HasPrefix(string(kv.Key), "store/\x00") {
			continue
		}
		outside++
		if string(kv.Value) != "mine" || kv.Version != 1 {
			t.Errorf("the key %q was changed", kv.Key)
		}
	}
	if outside != 5 {
		t.Errorf("%d keys are outside the store, want 5", outside)
	}
}

func TestNewerSchema(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	prefix := server.Prefix(t)
	if _, err := server.Client(t).Put(fixture.Context(t), prefix+"/\x00mstore", "ashlar 2 unknown fields"); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Open(fixture.Context(t), parsed(t, server.StoreURLIn(t, prefix))); !errors.Is(err, storage.ErrNewerSchema) {
		t.Errorf("open a newer store: %v, want ErrNewerSchema", err)
	}
}

func TestCreateOff(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	prefix := server.Prefix(t)
	if _, err := etcd.Open(fixture.Context(t), parsed(t, server.StoreURLIn(t, prefix, "create=off"))); !errors.Is(err, storage.ErrNoStore) || !strings.Contains(err.Error(), prefix) {
		t.Errorf("open a prefix without a store: %v, want an error with the prefix", err)
	}
	resp, err := server.Client(t).Get(fixture.Context(t), prefix, clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 0 {
		t.Errorf("create=off has written %v, %v", resp.Kvs, err)
	}
	res := fixture.Write(t, open(t, server.StoreURLIn(t, prefix)), service("a"))
	if got := fixture.Stored(t, open(t, server.StoreURLIn(t, prefix, "create=off")), res.Id); got == nil {
		t.Error("create=off does not find the resource of the existing store")
	}
}

// New uses the caller's client, and Close does not close it.
func TestNew(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	client := server.Client(t)
	prefix := server.Prefix(t)
	b, err := etcd.New(fixture.Context(t), client, &etcd.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	res := fixture.Write(t, b, service("a"))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(fixture.Context(t), "x"); err != nil {
		t.Errorf("the client after the backend was closed: %v", err)
	}
	again, err := etcd.New(fixture.Context(t), client, &etcd.Options{Prefix: prefix, NoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := fixture.Stored(t, again, res.Id); got.GetVersion() != res.Version {
		t.Errorf("stored is %v, want version %s", got, res.Version)
	}
	if _, err := etcd.New(fixture.Context(t), nil, nil); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("without a client: %v, want ErrInvalid", err)
	}
}
