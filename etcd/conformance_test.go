//go:build integration

package etcd_test

import (
	"strings"
	"testing"

	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
)

func TestMain(m *testing.M) {
	if !faults.ServeProcess() {
		env.Main(m)
	}
}

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{
		URL: func(t testing.TB) string {
			if strings.Contains(t.Name(), "/Historian/Compact") {
				return env.StartEtcd(t).StoreURL(t) // a compaction concerns all of a cluster
			}
			return env.Etcd(t).StoreURL(t)
		},
	})
}
