package mover

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// handle is a handle on a store in memory, and all that a migration can ask of a backend.
type handle struct {
	storage.Backend
	driver.GuardedMover
	driver.BulkReader
	driver.Loader
	commit func(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error)
}

// As implements what storage.As asks first.
func (h *handle) As(target any) bool {
	switch t := target.(type) {
	case *driver.Mover:
		*t = h.GuardedMover
	case *driver.GuardedMover:
		*t = h.GuardedMover
	case *driver.BulkReader:
		*t = h.BulkReader
	case *driver.Loader:
		*t = h.Loader
	case *storage.Transactor:
		*t = h
	default:
		return false
	}
	return true
}

// MaxOps implements storage.Transactor.
func (*handle) MaxOps() int { return 32 }

// Commit implements storage.Transactor.
func (h *handle) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	return h.commit(ctx, ops)
}

// openHandle opens another handle on the store of that name, which is right in everything.
func openHandle(t testing.TB, name string) *handle {
	b := must[storage.Backend](t)(storage.Open(t.Context(), "mem://"+name))
	t.Cleanup(func() { ok(t, b.Close()) })
	m, _ := storage.As[driver.GuardedMover](b)
	transactor, _ := storage.As[storage.Transactor](b)
	return &handle{Backend: b, GuardedMover: m, BulkReader: &listed{Backend: b}, Loader: committed{b}, commit: transactor.Commit}
}

// listed reads in steps what it has listed as a whole, once there is something: a rule that reads in steps writes first.
type listed struct {
	storage.Backend
	all []*resourcepb.Resource
}

func (l *listed) ReadAfter(ctx context.Context, after []byte, limit int) (rows []driver.Row, err error) {
	if len(l.all) == 0 {
		if l.all, err = l.List(ctx, storage.StrongConsistency, everything, everywhere(), ""); err != nil {
			return nil, err
		}
	}
	size := 0
	for _, res := range l.all {
		k := key.Of(res.Id)
		if after != nil && bytes.Compare(k.Bytes(), after) <= 0 {
			continue
		}
		if len(rows) == limit || size >= driver.ReadBytes {
			break
		}
		data, err := driver.Encode(res)
		if err != nil {
			return nil, err
		}
		size += len(data)
		rows = append(rows, driver.Row{Key: k, Version: res.Version, Data: data})
	}
	return rows, nil
}

// committed loads by one transaction.
type committed struct{ storage.Backend }

func (c committed) Load(ctx context.Context, rows []driver.Row) error {
	all, err := decoded(rows)
	if err != nil {
		return err
	}
	return commit(ctx, c.Backend, all)
}

func decoded(rows []driver.Row) ([]*resourcepb.Resource, error) {
	all := make([]*resourcepb.Resource, len(rows))
	for i, row := range rows {
		var err error
		if all[i], err = driver.Decode(row.Key, row.Data, ""); err != nil {
			return nil, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
		}
	}
	return all, nil
}

// commit writes resources in one transaction.
func commit(ctx context.Context, b storage.Backend, all []*resourcepb.Resource) error {
	ops := make([]storage.Op, len(all))
	for i, res := range all {
		ops[i].Write = res
	}
	t, _ := storage.As[storage.Transactor](b)
	_, err := t.Commit(ctx, ops)
	return err
}

// recorder is the testing.TB of a test that is meant to fail.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	said     []string
	cleanups []func()
}

func (*recorder) Helper() {}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Error(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprint(args...))
}

func (r *recorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }

func (r *recorder) Fatal(args ...any) { r.Error(args...); runtime.Goexit() }

func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

// record runs a rule against two handles of a new store, and returns what it complained about.
func record(t *testing.T, rule string, spoil func(h *handle, s *shared)) []string {
	r := &recorder{TB: t}
	over := make(chan struct{})
	go func() {
		defer close(over)
		name := rand.Text()
		s := &shared{}
		handles := make([]*handle, 2)
		for i := range handles {
			handles[i] = openHandle(r, name)
			if spoil != nil {
				spoil(handles[i], s)
			}
		}
		one, other := as(r, handles[0]), as(r, handles[1])
		switch h := handles[0]; {
		case moverRules[rule] != nil:
			moverRules[rule](r, one, other)
		case guardRules[rule] != nil:
			guardRules[rule](r, h.GuardedMover, one, other)
		case readerRules[rule] != nil:
			readerRules[rule](r, h.BulkReader, one, other)
		case loaderRules[rule] != nil:
			loaderRules[rule](r, h.Loader, one, other)
		default:
			r.Fatalf("there is no rule %q", rule)
		}
	}()
	<-over
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	return r.said
}

// TestReference makes sure that a defect is not found merely because of what carries it.
func TestReference(t *testing.T) {
	t.Parallel()
	for _, rules := range [][]string{names(moverRules), names(guardRules), names(readerRules), names(loaderRules)} {
		for _, rule := range rules {
			t.Run(rule, func(t *testing.T) {
				t.Parallel()
				if said := record(t, rule, nil); said != nil {
					t.Errorf("of a handle that is right: %q", said)
				}
			})
		}
	}
}

// TestDefects proves the rules: each defect has to be found by the one that is there for it, and each rule finds one.
func TestDefects(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for _, d := range defects {
		found[d.by] = true
		t.Run(d.bug+", "+d.by, func(t *testing.T) {
			t.Parallel()
			said := record(t, d.by, d.spoil)
			if !slices.ContainsFunc(said, regexp.MustCompile(d.says).MatchString) {
				t.Errorf("not found, or for another reason, which was: %q", said)
			}
		})
	}
	for _, rules := range [][]string{names(moverRules), names(guardRules), names(readerRules), names(loaderRules)} {
		for _, rule := range rules {
			if !found[rule] {
				t.Errorf("no defect proves rule %q", rule)
			}
		}
	}
}

func names[T any](rules map[string]T) (all []string) {
	for name := range rules {
		all = append(all, name)
	}
	return all
}
