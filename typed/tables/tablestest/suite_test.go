package tablestest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/typed/tables"
)

// Store is what the suite asks of a [tables.Store].
type Store interface {
	View(ctx context.Context, fn func(*tables.View) error, opts ...tables.ViewOption) error
	Update(ctx context.Context, fn func(*tables.Tx) error) error
	Batch(ctx context.Context, fn func(*tables.Batch) error) error
	ViewAndWatch(ctx context.Context, fn func(*tables.View) error, filters ...tables.Filter) (*tables.Watch, error)
	Close() error
}

// Harness says what is tested.
type Harness struct {
	// Handles makes a new, empty database, and returns a function that opens a handle of it. What they are is cleaned up with t; the
	// suite closes the handles.
	Handles func(t testing.TB) func(context.Context) (storage.Backend, error)
	// Store opens a store over a handle; nil is [tables.Open].
	Store func(ctx context.Context, b storage.Backend, described ...tables.AnyTable) (Store, error)
	// Exempt says of a rule why the backend cannot be held to it.
	Exempt map[string]string
	// Patience is how long a rule may take; 0 is two minutes.
	Patience time.Duration
}

// Rule is something that a store promises.
type Rule struct {
	// Name is that of the subtest.
	Name string
	// Says is the rule.
	Says string

	check func(*world) error
}

// Rules returns all rules.
func Rules() []Rule {
	return []Rule{
		{"S1", "a View is never torn: it shows all of a commit or nothing", torn},
		{"S2", "what was written through a store is in all its Views that follow", ownWrites},
		{"S3", "a Linearizable View shows every acknowledged write", fresh},
		{"S4", "transactions are strictly serializable by key: no lost update, no write skew", histories},
		{"S5", "ViewAndWatch shows every change after its View, once, with the object before it", watching},
		{"S6", "an index finds what a look at all objects finds", indexes},
		{"S7", "objects that are shared do not change", shared},
		{"S8", "the copy survives ends of its watch, lost history and lost answers", faults},
	}
}

// Run holds a store to all rules, each in a subtest.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for name := range h.Exempt {
		if !slices.ContainsFunc(Rules(), func(r Rule) bool { return r.Name == name }) {
			t.Errorf("there is no rule %q to be exempt from", name)
		}
	}
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			t.Parallel()
			if why, exempt := h.Exempt[rule.Name]; exempt {
				t.Logf("exempt from %s (%s): %s", rule.Name, rule.Says, why)
				return
			}
			if err := Check(t, h, rule); err != nil {
				t.Errorf("%s, %s: %v", rule.Name, rule.Says, err)
			}
		})
	}
}

// Check holds a store to one rule, and returns what is wrong.
func Check(t testing.TB, h Harness, rule Rule) (err error) {
	t.Helper()
	if h.Patience == 0 {
		h.Patience = 2 * time.Minute
	}
	if h.Store == nil {
		h.Store = func(ctx context.Context, b storage.Backend, described ...tables.AnyTable) (Store, error) {
			return tables.Open(ctx, b, described...)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), h.Patience)
	defer cancel()
	w := &world{ctx: ctx, h: h, handle: h.Handles(t)}
	defer func() { err = errors.Join(err, w.close()) }()
	for range 2 {
		if _, err := w.open(func(b storage.Backend) storage.Backend { return b }); err != nil {
			return fmt.Errorf("open: %w", err)
		}
	}
	return guarded(ctx, func(context.Context) error { return rule.check(w) })
}
