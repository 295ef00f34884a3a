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

	"github.com/ashlar-dev/storage/internal/leaks"
)

// inMain is set while Main runs the tests, because only Main removes the shared containers.
var inMain bool

// Main is the TestMain of a package with integration tests. It runs the tests, stops the shared servers, and fails if goroutines
// remain.
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
			fmt.Fprintln(os.Stderr, "env: stopping a shared server:", err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		if err := leaks.AwaitNone(time.Minute); err != nil {
			fmt.Fprintln(os.Stderr, "env: the tests passed but goroutines remain:", err)
			code = 1
		}
	}
	return code
}

// shared is a server that the tests of one binary share. The first request starts it.
type shared[S any] struct {
	once  sync.Once
	value S
	err   error
	stop  func() error
}

// get starts the server at the first call. stop may be nil, because a server given by URL must not be stopped.
func (s *shared[S]) get(t testing.TB, name string, start func() (value S, stop func() error, err error)) S {
	t.Helper()
	if !inMain {
		t.Fatal("env: this package needs func TestMain(m *testing.M) { env.Main(m) }, to stop the shared servers")
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

// unique returns a short name that no other test uses.
func unique() string { return strings.ToLower(rand.Text()[:12]) }
