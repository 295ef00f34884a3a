//go:build integration

package etcd_test

import (
	"testing"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/damage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestDamage(t *testing.T) {
	t.Parallel()
	damage.Run(t, func(t *testing.T) damage.Harness {
		server := env.Etcd(t)
		prefix := server.Prefix(t)
		client := server.Client(t)
		return damage.Harness{Backend: open(t, server.StoreURLIn(t, prefix)), Replace: func(t *testing.T, id *resourcepb.ID, data []byte) {
			at := prefix + "/\x00r" + string(key.Of(id).Bytes())
			old, err := client.Get(fixture.Context(t), at)
			if err != nil || len(old.Kvs) != 1 {
				t.Fatalf("%v, %v", old, err)
			}
			header := old.Kvs[0].Value[:17]
			if _, err := client.Put(fixture.Context(t), at, string(header)+string(data)); err != nil {
				t.Fatal(err)
			}
		}}
	})
}
