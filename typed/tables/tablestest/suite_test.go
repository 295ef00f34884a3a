package tablestest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance"
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

// Harness describes the tested store. It is the harness of the backend below: its exemptions exempt from rules, and its Timeout bounds the duration of
// a rule; 0 is five minutes.
type Harness struct {
	conformance.Harness
	// OpenStore opens a store over a handle; nil is [tables.Open].
	OpenStore func(ctx context.Context, b storage.Backend, all ...tables.AnyTable) (Store, error)
	// Layer wraps the handles of the stores, unless it is nil.
	Layer func(storage.Backend) storage.Backend
}

// Rule is a guarantee of a store.
type Rule struct {
	// Name is the name of the subtest.
	Name string
	// Text is the guarantee.
	Text string

	check func(*world) error
	// exempt returns the reason why the rule does not apply; it may be nil.
	exempt func(*Harness) string
}

// Rules returns all rules.
func Rules() []Rule {
	return []Rule{
		{"S1", "a View contains all of a commit or nothing", viewsAreWhole, func(h *Harness) string { return cmp.Or(h.NoCommitBounds, h.NoBookmarker) }},
		{"S2", "a View includes all earlier writes through the same store", readYourWrites, nil},
		{"S3", "a Linearizable View includes every acknowledged write", linearizableViews, func(h *Harness) string { return h.NoBookmarker }},
		{"S4", "transactions are strictly serializable by key: no lost update, no write skew", histories, nil},
		{"S5", "ViewAndWatch returns every change after its View once, with the object before it", watches, nil},
		{"S6", "a query by an index returns the same objects as a scan", indexes, nil},
		{"S7", "shared objects do not change", sharedObjects, nil},
		{"S8", "the copy survives ends of its watch, lost history and lost answers", watchFaults, nil},
		{"S9", "stores over handles in other processes, which are killed, keep S1, S3 and S4", processes, func(h *Harness) string {
			if h.Processes {
				return ""
			}
			return "the program serves no handles in other processes"
		}},
	}
}

// Run checks a store against all rules, each in a subtest.
func Run(t *testing.T, h Harness) {
	t.Helper()
	t.Parallel()
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			t.Parallel()
			if rule.exempt != nil && rule.exempt(&h) != "" {
				t.Logf("exempt from %s (%s): %s", rule.Name, rule.Text, rule.exempt(&h))
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
		h.Timeout = 5 * time.Minute
	}
	if h.OpenStore == nil {
		h.OpenStore = func(ctx context.Context, b storage.Backend, all ...tables.AnyTable) (Store, error) {
			return tables.Open(ctx, b, all...)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), h.Timeout)
	defer cancel()
	w := &world{ctx: ctx, h: h}
	w.url, w.handle = h.Store(t)
	defer func() { err = errors.Join(err, w.close()) }()
	for range 2 {
		if _, err := w.open(nil); err != nil {
			return fmt.Errorf("open: %w", err)
		}
	}
	return recoverPanic(ctx, func(context.Context) error { return rule.check(w) })
}
