//go:build integration

package etcd_test

import (
	"strings"
	"testing"

	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/testenv"
)

func TestMain(m *testing.M) {
	if !faults.ServeProcess() {
		testenv.Main(m)
	}
}

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{
		URL: func(t testing.TB) string {
			if strings.Contains(t.Name(), "/Historian/Compact") {
				return testenv.StartEtcd(t).StoreURL(t) // a compaction concerns all of a cluster
			}
			return testenv.Etcd(t).StoreURL(t)
		},
	})
}
