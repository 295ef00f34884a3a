//go:build integration

package etcd_test

import (
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestNoSpace(t *testing.T) {
	t.Parallel()
	server := testenv.StartEtcd(t, "--quota-backend-bytes=16777216")
	b := open(t, server.StoreURL(t))
	client := server.Client(t)
	w := watchAll(t, b)

	var all []*resourcepb.Resource
	var err error
	for i := 0; err == nil; i++ {
		if i > 64 {
			t.Fatal("the server took 32 MiB on a quota of 16")
		}
		var out *resourcepb.Resource
		if out, err = b.WriteCAS(within(t), sized(fmt.Sprint("s", i), 1<<19)); err == nil {
			all = append(all, out)
		}
	}
	if !errors.Is(err, etcd.ErrNoSpace) || errors.Is(err, storage.ErrInconsistent) {
		t.Fatalf("a write without space: %v, want ErrNoSpace", err)
	}
	for _, res := range all {
		wantNext(t, w, upserted(res))
	}
	// Reads and deletes go on, also beside writes in one batch.
	if got := stored(t, b, all[0]); got.Version != all[0].Version {
		t.Errorf("read version %s, want %s", got.Version, all[0].Version)
	}
	together(2*len(all), func(i int) {
		if i < len(all) {
			remove(t, b, all[i])
			return
		}
		if _, err := b.WriteCAS(within(t), service(fmt.Sprint("n", i))); !errors.Is(err, etcd.ErrNoSpace) {
			t.Errorf("a write without space: %v, want ErrNoSpace", err)
		}
	})
	gone := map[string]bool{}
	for range all {
		ev, err := w.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		gone[what(ev)] = true
	}
	for _, res := range all {
		if !gone[deleted(res)] {
			t.Errorf("the deletion of %s was not seen", res.Id.Name)
		}
	}

	compact(t, client)
	if _, err := client.Defragment(within(t), server.Endpoint); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AlarmDisarm(within(t), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	wantNext(t, w, upserted(write(t, b, service("after"))))
}
