//go:build integration

package etcd_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A backup that is restored as README.md says takes the store back, and nothing that a client has kept from after the backup
// fits what is there then.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	server := env.StartEtcdWithBackup(t)
	proxy := faultproxy.New(t, server.Endpoint)
	b := open(t, through(server.StoreURL(t), server.Endpoint, proxy.Addr()))

	kept := fixture.Write(t, b, service("kept"))
	changed := fixture.Write(t, b, service("changed"))
	w := fixture.WatchChanges(t, b)
	cursors := []string{w.Cursor()}
	server.Save(t)
	lost := fixture.Write(t, b, at(changed, changed.Version))
	gone := fixture.Write(t, b, service("gone"))
	wantNext(t, w, upserted(lost), upserted(gone))
	cursors = append(cursors, w.Cursor())
	revision := newest(t, historian(t, b))
	page, err := b.ListPage(fixture.Context(t), serviceType, tenancy, "", storage.ListOptions{Limit: 1})
	if err != nil || page.Continue == "" {
		t.Fatalf("first page: %v, continue %q", err, page.Continue)
	}

	proxy.Redirect(server.Restore(t, "--bump-revision=1000000000", "--mark-compacted").Endpoint)
	proxy.Cut()
	wantEnd(t, w)
	for i, cursor := range cursors {
		w, err := b.WatchFrom(fixture.Context(t), serviceType, tenancy, "", cursor)
		if err == nil {
			defer w.Close()
			_, err = w.Next(fixture.Context(t))
		}
		if !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("watching from cursor %d: %v, want ErrCompacted", i, err)
		}
	}

	wantPastGone(t, b, page.Continue, revision)

	if got := fixture.Stored(t, b, kept.Id); got == nil || got.Version != kept.Version {
		t.Errorf("what was not written after the backup is %v, want version %s", got, kept.Version)
	}
	if got := fixture.Stored(t, b, gone.Id); got != nil {
		t.Errorf("what was created after the backup is there: %v", got)
	}
	anew := fixture.WatchChanges(t, b)
	again := fixture.Write(t, b, at(changed, changed.Version))
	if _, err := b.WriteCAS(fixture.Context(t), at(lost, lost.Version)); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("writing over a version from after the backup: %v, want ErrCASFailure", err)
	}
	wantNext(t, anew, upserted(again))
}

// wantPastGone demands that neither a page nor a scan shows what was stored at a revision from before a restore.
func wantPastGone(t *testing.T, b storage.Backend, token string, revision int64) {
	t.Helper()
	for _, consistency := range []storage.ReadConsistency{storage.EventualConsistency, storage.StrongConsistency} {
		page, err := b.(storage.Pager).ListPage(fixture.Context(t), serviceType, tenancy, "", storage.ListOptions{Consistency: consistency, Continue: token})
		if !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("a page from before the restore: %v, %v; want ErrCompacted", page.Resources, err)
		}
	}
	scan, err := historian(t, b).Scan(fixture.Context(t), storage.Span{}, storage.ScanOptions{Revision: revision})
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a scan at revision %d, from before the restore: %v, %v; want ErrCompacted", revision, scan.Records, err)
	}
}

// A backup that is restored as it is gives out revisions a second time. A handle that has seen them reads at none any more, even when
// the cluster has come to it again.
func TestRestoredBackupReusesRevisions(t *testing.T) {
	t.Parallel()
	server := env.StartEtcdWithBackup(t)
	proxy := faultproxy.New(t, server.Endpoint)
	b := open(t, through(server.StoreURL(t), server.Endpoint, proxy.Addr()))
	h := historian(t, b)
	fixture.Write(t, b, service("kept"))
	server.Save(t)
	fixture.Write(t, b, service("lost"))
	page, err := b.ListPage(fixture.Context(t), serviceType, tenancy, "", storage.ListOptions{Limit: 1})
	if err != nil || page.Continue == "" {
		t.Fatalf("first page: %v, continue %q", err, page.Continue)
	}
	revision := newest(t, h)
	for i := range 10 {
		fixture.Write(t, b, service(fmt.Sprint("lost", i)))
	}

	restored := server.Restore(t)
	proxy.Redirect(restored.Endpoint)
	proxy.Cut()
	stranger := restored.Client(t)
	for at := int64(0); at < revision; {
		put, err := stranger.Put(fixture.Context(t), "stranger", "")
		if err != nil {
			t.Fatal(err)
		}
		at = put.Header.Revision
	}
	wantPastGone(t, b, page.Continue, revision)
	if oldest, newest, err := h.Revisions(fixture.Context(t)); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("the revisions of a cluster that went back: %d to %d, %v; want ErrCompacted", oldest, newest, err)
	}
	scan, err := h.Scan(fixture.Context(t), storage.Span{}, storage.ScanOptions{})
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a scan of a cluster that went back says it shows revision %d, %v; want ErrCompacted", scan.Revision, err)
	}
}

// A watch may have begun at a revision that the feed has not come to, because others write to the cluster. If a backup from before is
// then restored as it is, the feed finds nothing missing of what it has published itself.
func TestRestoredBackupBeforeAWatch(t *testing.T) {
	t.Parallel()
	server := env.StartEtcdWithBackup(t)
	proxy := faultproxy.New(t, server.Endpoint)
	b := open(t, through(server.StoreURL(t), server.Endpoint, proxy.Addr()))
	fixture.Write(t, b, service("kept"))
	fixture.WatchChanges(t, b) // the feed begins
	server.Save(t)
	stranger := server.Client(t)
	for range 100 {
		if _, err := stranger.Put(fixture.Context(t), "stranger", ""); err != nil {
			t.Fatal(err)
		}
	}
	w := fixture.WatchChanges(t, b)
	proxy.Redirect(server.Restore(t).Endpoint)
	proxy.Cut()
	wantEnd(t, w)
}
