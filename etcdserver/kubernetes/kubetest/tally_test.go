//go:build integration

package kubetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tally counts events of a test, and logs them at its end.
type tally struct {
	mu    sync.Mutex
	names []string // in the order of their first appearance
	of    map[string]int
}

// newTally returns the tally of a test. Create it first, so that it logs last.
func newTally(t *testing.T) *tally {
	t.Helper()
	y := &tally{of: map[string]int{}}
	t.Cleanup(func() {
		y.mu.Lock()
		defer y.mu.Unlock()
		var facts []string
		for _, name := range y.names {
			facts = append(facts, fmt.Sprint(y.of[name], " ", name))
		}
		t.Log("facts: " + strings.Join(facts, ", "))
	})
	return y
}

func (y *tally) add(name string, n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if !slices.Contains(y.names, name) {
		y.names = append(y.names, name)
	}
	y.of[name] += n
}

// transport counts the requests of informers: lists, which are watches with initial events in newer clients, and resumed watches.
type transport struct {
	http.RoundTripper
	tally *tally
}

func (c *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	switch {
	case query.Get("watch") == "":
		c.tally.add("lists of informers", 1)
	case query.Get("sendInitialEvents") == "true":
		c.tally.add("lists of informers by watch", 1)
	default:
		c.tally.add("watches of informers that go on", 1)
	}
	return c.RoundTripper.RoundTrip(r)
}
