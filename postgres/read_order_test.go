//go:build integration

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/driver"
	past "github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// orderResource returns a resource of the kind of these tests.
func orderResource(name, owner string) *resourcepb.Resource {
	id := func(name string) *resourcepb.ID {
		return &resourcepb.ID{Uid: "uid-" + name, Name: name, Type: &resourcepb.Type{Group: "g", GroupVersion: "v1", Kind: "Kind"}, Tenancy: &resourcepb.Tenancy{}}
	}
	res := &resourcepb.Resource{Id: id(name)}
	if owner != "" {
		res.Owner = id(owner)
	}
	return res
}

// pendingWriter is a transaction that has drawn a number for an update, a deletion and a creation, and that has not ended. A later
// change is acknowledged and visible.
type pendingWriter struct {
	url string
	b   *Backend
	tx  pgx.Tx

	locked []string // resources that ended transactions have locked since
}

// newPendingWriter returns a writer that has called the function apply or, if quick is set, used the quick statements.
func newPendingWriter(t *testing.T, ctx context.Context, quick bool) *pendingWriter {
	t.Helper()
	server := env.Postgres(t)
	w := &pendingWriter{url: server.StoreURL(t)}
	w.b = openHandle(t, ctx, w.url)
	write := func(res *resourcepb.Resource) *resourcepb.Resource {
		t.Helper()
		out, err := w.b.WriteCAS(ctx, res)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	write(orderResource("owner", ""))
	updated, deleted, later := write(orderResource("updated", "")), write(orderResource("deleted", "")), write(orderResource("later", ""))
	other := write(orderResource("other", ""))
	sessions := newLockers(t, server)
	var locked []*lockedRow // by transactions that end
	for past := range rowPasts {
		locked = append(locked, lockedRowOf(t, sessions, w.b, write(orderResource("locked, "+past, ""))))
	}
	row := lockedRowOf(t, sessions, w.b, updated)
	for _, past := range rowPasts {
		past(ctx, row)
	}
	if _, err := w.b.List(ctx, storage.StrongConsistency, orderType, &resourcepb.Tenancy{}, ""); err != nil {
		t.Fatal(err)
	}
	creation, changes := mutationOf(t, driver.Write, orderResource("created", "owner")), []*mutation{mutationOf(t, driver.Write, updated), mutationOf(t, driver.Delete, deleted)}
	if conn := server.Connect(t); quick {
		var err error
		if w.tx, err = conn.Begin(ctx); err != nil {
			t.Fatal(err)
		}
		a := &attempt{lock: 1, expires: time.Now().Add(time.Hour)}
		if err := errors.Join(w.b.handle.quickChanges(ctx, conn, a, changes), w.b.handle.quickCreations(ctx, conn, a, []*mutation{creation})); err != nil || !creation.isApplied {
			t.Fatalf("applied: %t, %v", creation.isApplied, err)
		}
	} else {
		w.tx = w.b.pending(t, ctx, conn, append(changes, creation)...)
	}
	// These transactions end below and above the pending number, and change none of the rows.
	if _, err := w.b.Commit(ctx, []storage.Op{{Write: later}, {Check: other.Id, Version: other.Version}}); err != nil {
		t.Fatal(err)
	}
	for _, row := range locked {
		rowPasts[strings.TrimPrefix(row.res.Id.Name, "locked, ")](ctx, row)
		w.locked = append(w.locked, row.res.Id.Name)
	}
	return w
}

var orderType = storage.UnversionedType{Group: "g", Kind: "Kind"}

// strongCalls are the strong calls that depend on the pending change. Each returns what it shows of the store.
func (w *pendingWriter) strongCalls() map[string]func(ctx context.Context) (string, error) {
	describe := func(all []*resourcepb.Resource) string {
		var names []string
		for _, res := range all {
			names = append(names, res.Id.Name+" "+res.Version)
		}
		return strings.Join(names, ", ")
	}
	read := func(name string) func(ctx context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			res, err := w.b.Read(ctx, storage.StrongConsistency, orderResource(name, "").Id)
			if errors.Is(err, storage.ErrNotFound) {
				return "nothing", nil
			}
			return res.GetVersion(), err
		}
	}
	list := func(b storage.Backend) func(ctx context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			all, err := b.List(ctx, storage.StrongConsistency, orderType, &resourcepb.Tenancy{}, "")
			return describe(all), err
		}
	}
	return map[string]func(ctx context.Context) (string, error){
		"read of the updated resource": read("updated"),
		"read of the created resource": read("created"),
		"read of the deleted resource": read("deleted"),
		"list":                         list(w.b),
		"list with a wildcard": func(ctx context.Context) (string, error) {
			all, err := w.b.List(ctx, storage.StrongConsistency, orderType, &resourcepb.Tenancy{Partition: storage.Wildcard}, "created")
			return describe(all), err
		},
		"page": func(ctx context.Context) (string, error) {
			page, err := w.b.ListPage(ctx, orderType, &resourcepb.Tenancy{}, "", storage.ListOptions{Consistency: storage.StrongConsistency})
			return describe(page.Resources), err
		},
		"owner references": func(ctx context.Context) (string, error) {
			ids, err := w.b.OwnerReferences(ctx, orderResource("owner", "").Id)
			return fmt.Sprint(len(ids)), err
		},
		"snapshot of a watch": func(ctx context.Context) (string, error) {
			watch, err := w.b.WatchList(ctx, orderType, &resourcepb.Tenancy{}, "")
			if err != nil {
				return "", err
			}
			defer watch.Close()
			var all []*resourcepb.Resource
			for {
				event, err := watch.Next(ctx)
				if err != nil || event.GetEndOfSnapshot() != nil {
					return describe(all), err
				}
				all = append(all, event.GetUpsert().GetResource())
			}
		},
		"scan": func(ctx context.Context) (string, error) {
			h, _ := storage.As[past.Historian](w.b)
			scan, err := h.Scan(ctx, past.Range{}, past.ScanOptions{})
			var all []*resourcepb.Resource
			for _, r := range scan.Records {
				all = append(all, r.Resource)
			}
			return describe(all), err
		},
		"list of a cache": func(ctx context.Context) (string, error) {
			other, err := storage.Open(ctx, w.url)
			if err != nil {
				return "", err
			}
			c, err := cache.New(ctx, other, nil)
			if err != nil {
				return "", errors.Join(err, other.Close())
			}
			defer c.Close()
			return list(c)(ctx)
		},
	}
}

// startSignal is a context of a call that reports when the call first waits for something.
type startSignal struct {
	context.Context
	started func()
}

func (s *startSignal) Done() <-chan struct{} {
	s.started()
	return s.Context.Done()
}

// TestReadsWaitForALowerNumber holds a writer between its number and its commit, while a change with a higher number is acknowledged.
// The acknowledged change must be part of each strong answer, so the pending one must be too: each call that concerns it waits.
func TestReadsWaitForALowerNumber(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprint("commit=", commit), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			t.Cleanup(cancel)
			w := newPendingWriter(t, ctx, !commit)
			calls := w.strongCalls()
			short, stop := context.WithTimeout(ctx, 500*time.Millisecond)
			defer stop()
			type answer struct {
				name, text string
				err        error
			}
			answers := make(chan answer)
			for name, call := range calls {
				go func() {
					text, err := call(short)
					answers <- answer{name, text, err}
				}()
			}
			for range calls {
				if a := <-answers; !errors.Is(a.err, context.DeadlineExceeded) {
					t.Errorf("%s beside a pending change: %q, %v; expected to wait until the deadline", a.name, a.text, a.err)
				}
			}
			// Reads of other resources, eventual reads and writes do not wait, even if ended transactions have locked the resource.
			for _, name := range append([]string{"later", "other"}, w.locked...) {
				bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
				if _, err := w.b.Read(bounded, storage.StrongConsistency, orderResource(name, "").Id); err != nil {
					t.Errorf("read of %s: %v", name, err)
				}
				cancel()
			}
			if _, err := w.b.Read(ctx, storage.EventualConsistency, orderResource("created", "").Id); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("eventual read: %v, expected ErrNotFound", err)
			}
			if all, err := w.b.List(ctx, storage.EventualConsistency, orderType, &resourcepb.Tenancy{}, ""); err != nil || len(all) != 5+len(rowPasts) {
				t.Errorf("eventual list: %v, %v", all, err)
			}
			var started sync.WaitGroup
			for name, call := range calls {
				started.Add(1)
				go func() {
					text, err := call(&startSignal{Context: ctx, started: sync.OnceFunc(started.Done)})
					answers <- answer{name, text, err}
				}()
			}
			started.Wait()
			var err error
			if commit {
				err = w.tx.Commit(ctx)
			} else {
				err = w.tx.Rollback(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			told := map[string]string{}
			for range calls {
				a := <-answers
				if a.err != nil {
					t.Errorf("%s after the end of the pending change: %v", a.name, a.err)
				}
				told[a.name] = a.text
			}
			for _, name := range []string{"page", "snapshot of a watch", "scan", "list of a cache"} {
				if told[name] != told["list"] {
					t.Errorf("%s: %q, expected the resources of the list: %q", name, told[name], told["list"])
				}
			}
			if got := strings.Contains(told["list"], "created"); got != commit {
				t.Errorf("the list: %q, expected the created resource: %t", told["list"], commit)
			}
			if got := told["read of the deleted resource"] == "nothing"; got != commit || strings.Contains(told["list"], "deleted") == commit {
				t.Errorf("the read: %q, the list: %q; expected the deletion: %t", told["read of the deleted resource"], told["list"], commit)
			}
		})
	}
}

// TestOneOrderOfAnswers runs the load of package faults, without faults, on several handles, and compares all strong answers with the
// order of a watch.
func TestOneOrderOfAnswers(t *testing.T) {
	t.Parallel()
	storeURL := env.Postgres(t).StoreURL(t)
	h := faults.Harness{
		Open:   func(ctx context.Context) (storage.Backend, error) { return storage.Open(ctx, storeURL) },
		Exempt: map[faults.Kind]string{},
	}
	h.Around = h.Open
	for _, kind := range faults.Kinds() {
		h.Exempt[kind] = "the test compares answers of a healthy server"
	}
	faults.Test(t, h, faults.Options{For: 10 * time.Second, Round: 5 * time.Second, Handles: 6, Workers: 18, Keys: 24, NoLeakCheck: true})
}
