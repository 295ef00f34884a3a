//go:build integration

package kubetest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/test/env"

	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// apiserverVariable has the test binary be a kube-apiserver, whose command line it takes.
const apiserverVariable = "ASHLAR_KUBETEST_APISERVER"

func TestMain(m *testing.M) {
	if os.Getenv(apiserverVariable) == "" {
		env.Main(m)
		return
	}
	// Kubernetes compares its caches with the storage every five minutes. A test does not take that long.
	cacher.ConsistencyCheckPeriod = time.Second
	command := app.NewAPIServerCommand()
	code := cli.Run(command)
	fmt.Fprintln(os.Stderr, "kube-apiserver ended with", code)
	os.Exit(code)
}
