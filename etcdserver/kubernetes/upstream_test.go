package kubernetes

import (
	"context"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/ashlar-dev/storage"
)

// upstreamTest runs a test that Kubernetes exports for implementations of its storage.Interface, on storage of some kind.
type upstreamTest[Storage any] struct {
	upstream string // its name, in k8s.io/apiserver/pkg/storage/testing
	variant  string // if the test runs in several variants
	gates    gates  // features to set while it runs; they belong to the process, so the test cannot run in parallel
	alone    bool   // the test itself sets features
	hurried  bool   // the test fails if it has to wait for seconds
	// untouched: the test reads from the first revision of a store on.
	untouched bool
	options   cacheOptions
	run       func(ctx context.Context, t *testing.T, s Storage)
}

type gates map[featuregate.Feature]bool

// name returns a unique name within the table.
func (u upstreamTest[Storage]) name() string {
	if u.variant == "" {
		return u.upstream
	}
	return u.upstream + "/" + u.variant
}

// together reports whether the test may run in parallel.
func (u upstreamTest[Storage]) together() bool { return len(u.gates) == 0 && !u.alone && !u.hurried }

// suite is a table of tests to run on engines, each in its own store.
type suite[Storage any] struct {
	tests []upstreamTest[Storage]
	open  func(t *testing.T, u upstreamTest[Storage], empty storage.Backend) Storage
	// without returns the tests that do not hold on an engine, with reasons; nil means none.
	without func(e engine) map[string]string
}

// prepared is an engine in a test function, with the function that creates its stores.
type prepared struct {
	engine
	store func(t testing.TB, untouched bool) storage.Backend
}

// prepare prepares engines for the tests of one test function.
func prepare(t *testing.T, engines []engine) (all []prepared) {
	t.Helper()
	for _, e := range engines {
		all = append(all, prepared{engine: e, store: e.prepare(t)})
	}
	return all
}

// runTogether runs the tests that may run in parallel. Most of them wait for time to pass, so engines run in parallel. Tests of one
// engine run in parallel if the engine allows it.
func (s *suite[Storage]) runTogether(t *testing.T, engines []engine) {
	t.Helper()
	for _, e := range prepare(t, engines) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			for _, test := range s.tests {
				if !test.together() || s.leftOut(t, test, e) {
					continue
				}
				t.Run(test.name(), func(t *testing.T) {
					if !e.alone {
						t.Parallel()
					}
					test.run(context.Background(), t, s.open(t, test, e.store(t, test.untouched)))
				})
			}
		})
	}
}

// runAlone runs the tests that may not run in parallel, one after the other. Unless a test sets features itself, it runs on all engines at once.
func (s *suite[Storage]) runAlone(t *testing.T, engines []engine) {
	t.Helper()
	all := prepare(t, engines)
	for _, test := range s.tests {
		if test.together() {
			continue
		}
		t.Run(test.name(), func(t *testing.T) {
			for feature, on := range test.gates {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, feature, on)
			}
			for _, e := range all {
				if s.leftOut(t, test, e) {
					continue
				}
				t.Run(e.name, func(t *testing.T) {
					if !test.alone {
						t.Parallel()
					}
					test.run(context.Background(), t, s.open(t, test, e.store(t, test.untouched)))
				})
			}
		})
	}
}

// leftOut reports whether a test does not hold on an engine, and logs the reason.
func (s *suite[Storage]) leftOut(t *testing.T, test upstreamTest[Storage], e prepared) bool {
	t.Helper()
	if s.without == nil {
		return false
	}
	reason, not := s.without(e.engine)[test.name()]
	if not {
		t.Logf("%s is left out: %s", test.name(), reason)
	}
	return not
}
