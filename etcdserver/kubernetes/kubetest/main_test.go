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

// apiserverVariable makes the test binary run as a kube-apiserver with its command line.
const apiserverVariable = "ASHLAR_KUBETEST_APISERVER"

func TestMain(m *testing.M) {
	if os.Getenv(apiserverVariable) == "" {
		env.Main(m)
		return
	}
	// Kubernetes compares its caches with the storage every five minutes, longer than a test.
	cacher.ConsistencyCheckPeriod = time.Second
	command := app.NewAPIServerCommand()
	code := cli.Run(command)
	fmt.Fprintln(os.Stderr, "kube-apiserver ended with", code)
	os.Exit(code)
}
