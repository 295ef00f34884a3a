//go:build integration

package etcd_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/driver/key"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestMain(m *testing.M) {
	if !faults.ServeProcess() {
		env.Main(m)
	}
}

func TestConformance(t *testing.T) {
	var prefixes sync.Map // by URL
	conformance.Run(t, conformance.Harness{
		URL: func(t testing.TB) string {
			if strings.Contains(t.Name(), "/Historian/Compact") {
				return env.StartEtcd(t).StoreURL(t) // a compaction affects the whole cluster
			}
			server := env.Etcd(t)
			prefix := server.Prefix(t)
			url := server.StoreURLIn(t, prefix)
			prefixes.Store(url, prefix)
			return url
		},
		Processes: true,
		Replace: func(t testing.TB, storeURL string, id *resourcepb.ID, data []byte) {
			prefix, _ := prefixes.Load(storeURL)
			client := env.Etcd(t).Client(t)
			at := prefix.(string) + "/\x00r" + string(key.Of(id).Bytes())
			old, err := client.Get(t.Context(), at)
			if err != nil || len(old.Kvs) != 1 {
				t.Fatalf("%v, %v", old, err)
			}
			header := old.Kvs[0].Value[:17]
			if _, err := client.Put(t.Context(), at, string(header)+string(data)); err != nil {
				t.Fatal(err)
			}
		},
		NoBulk: "pages of one revision use no resources in the server, and a transaction is the largest request",
	})
}
