package controllertest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
)

// Test checks the guarantees of package controller, the rules 25 to 34 of the resource service, over new backends, which are closed with the test.
// If newBackend is nil, it uses memory and a bubble of testing/synctest, and also checks the rules about time, which do not depend on the backend.
func Test(t *testing.T, newBackend func(*testing.T) storage.Backend) {
	for _, r := range rules {
		if r.isAboutTime && newBackend != nil {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, newBackend, parts{})
		})
	}
}

// maxWait is the maximum time that a rule waits for something that must happen, also on a busy machine.
const maxWait = 3 * time.Minute

// rule is a guarantee with its test.
type rule struct {
	name        string
	isAboutTime bool
	check       func(*world)
}

var rules = []rule{
	{"25 no reconcile before all types are cached", false, checkPriming},
	{"26 a deletion during an interruption leaves the cache", false, checkDeletionWhileInterrupted},
	{"27 every state of a change is mapped", false, checkEveryState},
	{"28 the back-off doubles", true, checkBackoff},
	{"29 a requeue resets the back-off", true, checkRequeue},
	{"30 a panic and a timeout are retried", false, checkPanicAndTimeout},
	{"31 a process that has lost the lease writes nothing", false, checkFence},
	{"32 existing resources are not starved", true, checkStarvation},
	{"33 both ends of a moved reference are reconciled", false, checkMovedReference},
	{"34 no goroutine is left", false, checkGoroutines},
	{"a reconcile reads its own writes", false, checkReadYourWrites},
}

// run checks a rule.
func (r rule) run(t *testing.T, newBackend func(*testing.T) storage.Backend, p parts) {
	r.report(t, t, newBackend, p)
}

// report checks a rule and reports violations to a reporter.
func (r rule) report(t *testing.T, to reporter, newBackend func(*testing.T) storage.Backend, p parts) {
	check := func(t *testing.T, backend storage.Backend) {
		run(t, nil, backend, func(e *Env) { r.check(&world{Env: e, reporter: to, parts: p, timeout: maxWait}) })
	}
	if newBackend != nil {
		check(t, newBackend(t))
		return
	}
	synctest.Test(t, func(t *testing.T) {
		backend := inmem.New(nil)
		defer func() { _ = backend.Close() }()
		check(t, backend)
	})
}
