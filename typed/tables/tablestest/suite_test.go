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

// Store is the part of [tables.Store] that the suite uses.
type Store interface {
	View(ctx context.Context, fn func(*tables.View) error, opts ...tables.ViewOption) error
	Update(ctx context.Context, fn func(*tables.Tx) error) error
	Batch(ctx context.Context, fn func(*tables.Batch) error) error
	ViewAndWatch(ctx context.Context, fn func(*tables.View) error, filters ...tables.Filter) (*tables.Watch, error)
	Close() error
}

// Harness describes the tested store.
type Harness struct {
	// Handles creates a new, empty database and returns a function that opens a handle of it. The database is removed after t; the suite closes
	// the handles.
	Handles func(t testing.TB) func(context.Context) (storage.Backend, error)
	// Store opens a store over a handle; nil is [tables.Open].
	Store func(ctx context.Context, b storage.Backend, all ...tables.AnyTable) (Store, error)
	// Exempt maps the names of rules that do not apply to the backend to the reason.
	Exempt map[string]string
	// Timeout bounds the duration of a rule; 0 is two minutes.
	Timeout time.Duration
	// Slow reports that a commit takes milliseconds: rules then do a third of the work.
	Slow bool
}

// Rule is a guarantee of a store.
type Rule struct {
	// Name is the name of the subtest.
	Name string
	// Text is the guarantee.
	Text string

	check func(*world) error
}

// Rules returns all rules.
func Rules() []Rule {
	return []Rule{
		{"S1", "a View contains all of a commit or nothing", viewsAreWhole},
		{"S2", "a View includes all earlier writes through the same store", readYourWrites},
		{"S3", "a Linearizable View includes every acknowledged write", linearizableViews},
		{"S4", "transactions are strictly serializable by key: no lost update, no write skew", histories},
		{"S5", "ViewAndWatch returns every change after its View once, with the object before it", watches},
		{"S6", "a query by an index returns the same objects as a scan", indexes},
		{"S7", "shared objects do not change", sharedObjects},
		{"S8", "the copy survives ends of its watch, lost history and lost answers", faults},
	}
}

// Run checks a store against all rules, each in a subtest.
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
			if reason, exempt := h.Exempt[rule.Name]; exempt {
				t.Logf("exempt from %s (%s): %s", rule.Name, rule.Text, reason)
				return
			}
			if err := Check(t, h, rule); err != nil {
				t.Errorf("%s, %s: %v", rule.Name, rule.Text, err)
			}
		})
	}
}

// Check checks a store against one rule and returns the violation.
func Check(t testing.TB, h Harness, rule Rule) (err error) {
	t.Helper()
	if h.Timeout == 0 {
		h.Timeout = 2 * time.Minute
	}
	if h.Store == nil {
		h.Store = func(ctx context.Context, b storage.Backend, all ...tables.AnyTable) (Store, error) {
			return tables.Open(ctx, b, all...)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), h.Timeout)
	defer cancel()
	w := &world{ctx: ctx, h: h, handle: h.Handles(t)}
	defer func() { err = errors.Join(err, w.close()) }()
	for range 2 {
		if _, err := w.open(func(b storage.Backend) storage.Backend { return b }); err != nil {
			return fmt.Errorf("open: %w", err)
		}
	}
	return recoverPanic(ctx, func(context.Context) error { return rule.check(w) })
}
