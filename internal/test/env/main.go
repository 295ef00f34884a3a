//go:build integration

package env

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// inMain is set while Main runs the tests: only then is there somebody to end the shared containers.
var inMain bool

// Main is the TestMain of a package with integration tests: it runs the tests, ends the shared servers they used, and
// fails when they have left goroutines behind.
//
//	func TestMain(m *testing.M) { env.Main(m) }
func Main(m *testing.M) {
	os.Exit(runMain(m))
}

func runMain(m *testing.M) int {
	inMain = true
	code := m.Run()
	for _, end := range []func() error{sharedPostgres.end, sharedEtcd.end, sharedDynamoDB.end} {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, "env: ending a shared server:", err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		if err := leaks(); err != nil {
			fmt.Fprintln(os.Stderr, "env: the tests passed but left goroutines behind:", err)
			code = 1
		}
	}
	return code
}

// leaks waits for goroutines that are on their way out before it complains.
func leaks() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := goleak.Find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// shared is a server that the tests of one binary have in common, started when the first of them asks.
type shared[S any] struct {
	once  sync.Once
	value S
	err   error
	stop  func() error
}

// get starts the server at the first call. stop may be nil: a server given by URL is not ours to end.
func (s *shared[S]) get(t testing.TB, name string, start func() (value S, stop func() error, err error)) S {
	t.Helper()
	if !inMain {
		t.Fatal("env: this package needs func TestMain(m *testing.M) { env.Main(m) }, to end the shared servers")
	}
	s.once.Do(func() { s.value, s.stop, s.err = start() })
	if s.err != nil {
		unavailable(t, name, s.err)
	}
	return s.value
}

func (s *shared[S]) end() error {
	if s.stop == nil {
		return nil
	}
	return s.stop()
}

// unique is a short name that no other test uses.
func unique() string { return strings.ToLower(rand.Text()[:12]) }
