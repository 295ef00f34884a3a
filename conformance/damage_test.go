package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/sqlite"
)

// damagedStore is a SQLite store that handles damaged resources wrongly. Each function is one bug; without functions it is correct.
type damagedStore struct {
	*sqlite.Backend
	read   func(error) error
	list   func(error) error
	page   func(error) error
	skip   func(func(*storage.DamagedError) bool) func(*storage.DamagedError) bool
	remove func(error) error
	empty  bool // no bug: the first page of a listing is empty
	next   func(*resourcepb.WatchEvent, error) (*resourcepb.WatchEvent, error)
}

// answer applies a bug to the error of a damaged resource.
func answer(bug func(error) error, err error) error {
	var damaged *storage.DamagedError
	if bug != nil && errors.As(err, &damaged) {
		return bug(err)
	}
	return err
}

func (b *damagedStore) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	res, err := b.Backend.Read(ctx, c, id)
	return res, answer(b.read, err)
}

func (b *damagedStore) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	list, err := b.Backend.List(ctx, c, typ, tenancy, prefix)
	return list, answer(b.list, err)
}

func (b *damagedStore) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string, opts storage.ListOptions) (storage.Page, error) {
	if b.skip != nil {
		opts.SkipDamaged = b.skip(opts.SkipDamaged)
	}
	const afterEmptyPage = "after the empty page"
	switch {
	case b.empty && opts.Continue == "":
		return storage.Page{Continue: afterEmptyPage}, nil
	case opts.Continue == afterEmptyPage:
		opts.Continue = ""
	}
	page, err := b.Backend.ListPage(ctx, typ, tenancy, prefix, opts)
	return page, answer(b.page, err)
}

func (b *damagedStore) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	_, err := b.Backend.Read(ctx, strong, id)
	if err = answer(b.remove, err); b.remove != nil && err != nil {
		return err
	}
	return b.Backend.DeleteCAS(ctx, id, version)
}

func (b *damagedStore) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	if err != nil || b.next == nil {
		return w, err
	}
	return damagedWatch{w, b.next}, nil
}

type damagedWatch struct {
	storage.Watch
	next func(*resourcepb.WatchEvent, error) (*resourcepb.WatchEvent, error)
}

func (w damagedWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	ev, err := w.Watch.Next(ctx)
	if err == nil {
		return ev, nil
	}
	return w.next(ev, err)
}

// TestDamageDefects checks that the topic Damage finds each way to handle a damaged resource wrongly.
func TestDamageDefects(t *testing.T) {
	end := &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}}
	dropError := func(error) error { return nil }
	for _, d := range []struct {
		bug, says string
		store     damagedStore
	}{
		{"none", "", damagedStore{}},
		{"none, with empty first pages", "", damagedStore{empty: true}},
		{"lists skip damaged resources", "List, .*got error <nil>, want a DamagedError", damagedStore{list: dropError}},
		{"pages skip damaged resources", "a listing in pages of 0 ended without an error", damagedStore{page: dropError}},
		{"SkipDamaged is ignored", "ListPage of .* is damaged", damagedStore{skip: func(func(*storage.DamagedError) bool) func(*storage.DamagedError) bool {
			return nil
		}}},
		{"the result of SkipDamaged is ignored", "if SkipDamaged returns false: got error <nil>", damagedStore{
			skip: func(accepts func(*storage.DamagedError) bool) func(*storage.DamagedError) bool {
				if accepts == nil {
					return nil
				}
				return func(d *storage.DamagedError) bool { accepts(d); return true }
			},
		}},
		{"damaged resources are absent", "Read, .*want a DamagedError", damagedStore{read: func(error) error { return storage.ErrNotFound }}},
		{"the error names another key", "Read, .*want a DamagedError", damagedStore{read: func(error) error {
			return &storage.DamagedError{ID: thingID("other"), Err: storage.ErrInvalid}
		}}},
		{"the error recommends a retry", "matches ErrNotFound or ErrInconsistent", damagedStore{read: func(err error) error {
			return fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
		}}},
		{"damaged resources cannot be deleted", "DeleteCAS of the damaged resource", damagedStore{remove: func(err error) error { return err }}},
		{"snapshots end at a damaged resource", "the snapshot of a watch ended without an error|Next of", damagedStore{
			next: func(*resourcepb.WatchEvent, error) (*resourcepb.WatchEvent, error) { return end, nil },
		}},
		{"a watch ends without a reason", "want ErrWatchClosed with ErrCompacted", damagedStore{
			next: func(*resourcepb.WatchEvent, error) (*resourcepb.WatchEvent, error) {
				return nil, storage.ErrWatchClosed
			},
		}},
	} {
		t.Run(d.bug, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "store.db")
			h := Harness{
				Open: func(testing.TB) storage.Backend {
					d.store.Backend = must[*sqlite.Backend](t)(sqlite.Open(t.Context(), &url.URL{Scheme: "sqlite", Path: file}))
					return &d.store
				},
				Replace: func(_ testing.TB, _ string, id *resourcepb.ID, data []byte) { replaceInFile(t, file, id, data) },
				Timeout: time.Minute, OneHandle: "a test", NoMover: "a test",
			}
			h.complete(t)
			r := checkCase(t.Context(), &h, "Damage/Garbage", caseNamed(t, "Damage/Garbage"))
			if (r.Failure != "") != (d.says != "") || !regexp.MustCompile(d.says).MatchString(r.Failure) {
				t.Errorf("got the failure %q, want %q", r.Failure, d.says)
			}
		})
	}
}

// replaceInFile replaces the data of a resource in a store's file, as a change of its log.
func replaceInFile(t *testing.T, file string, id *resourcepb.ID, data []byte) {
	t.Helper()
	db := must[*sqlite3.Conn](t)(sqlite3.Open(file))
	defer db.Close()
	k, d := sqlite3.Quote(key.Of(id).Bytes()), sqlite3.Quote(data)
	if err := db.Exec(`
		BEGIN IMMEDIATE;
		INSERT INTO log (seq, tag, written, key, data) SELECT max(seq) + 1, 4711, max(written), ` + k + `, ` + d + ` FROM log;
		UPDATE resources SET (seq, tag) = (SELECT max(seq), 4711 FROM log), data = ` + d + ` WHERE key = ` + k + `;
		COMMIT`); err != nil {
		t.Fatal(err)
	}
}
