//go:build integration

package etcd_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A backup restored as in README.md takes the store back. No version, cursor or token from after the backup matches the restored state.
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
	created := fixture.Write(t, b, service("created"))
	wantNext(t, w, upserted(lost), upserted(created))
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

	wantCompacted(t, b, page.Continue, revision)

	if got := fixture.Stored(t, b, kept.Id); got == nil || got.Version != kept.Version {
		t.Errorf("a resource not changed after the backup is %v, want version %s", got, kept.Version)
	}
	if got := fixture.Stored(t, b, created.Id); got != nil {
		t.Errorf("a resource created after the backup is stored: %v", got)
	}
	restored := fixture.WatchChanges(t, b)
	again := fixture.Write(t, b, at(changed, changed.Version))
	if _, err := b.WriteCAS(fixture.Context(t), at(lost, lost.Version)); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("an update of a version from after the backup: %v, want ErrCASFailure", err)
	}
	wantNext(t, restored, upserted(again))
}

// wantCompacted requires that neither a page nor a scan reads a revision from before a restore.
func wantCompacted(t *testing.T, b storage.Backend, token string, revision int64) {
	t.Helper()
	for _, consistency := range []storage.ReadConsistency{storage.EventualConsistency, storage.StrongConsistency} {
		page, err := b.(storage.Pager).ListPage(fixture.Context(t), serviceType, tenancy, "", storage.ListOptions{Consistency: consistency, Continue: token})
		if !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("a page from before the restore: %v, %v; want ErrCompacted", page.Resources, err)
		}
	}
	scan, err := historian(t, b).Scan(fixture.Context(t), history.Range{}, history.ScanOptions{Revision: revision})
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a scan at revision %d, from before the restore: %v, %v; want ErrCompacted", revision, scan.Records, err)
	}
}

// A cluster restored without a bump uses revisions a second time. A handle that has seen such a revision does not read at it any more, even
// after the cluster has reached it again.
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
	client := restored.Client(t)
	for at := int64(0); at < revision; {
		put, err := client.Put(fixture.Context(t), "other-program", "")
		if err != nil {
			t.Fatal(err)
		}
		at = put.Header.Revision
	}
	wantCompacted(t, b, page.Continue, revision)
	if oldest, newest, err := h.Revisions(fixture.Context(t)); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("the revisions of a cluster that went back: %d to %d, %v; want ErrCompacted", oldest, newest, err)
	}
	scan, err := h.Scan(fixture.Context(t), history.Range{}, history.ScanOptions{})
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a scan of a cluster that went back has revision %d, %v; want ErrCompacted", scan.Revision, err)
	}
}

// A watch may start at a revision that the feed has not reached, because other programs write to the cluster. If an earlier backup is then
// restored without a bump, none of the revisions that the feed has published is missing, but the watch must end.
func TestRestoredBackupBeforeAWatch(t *testing.T) {
	t.Parallel()
	server := env.StartEtcdWithBackup(t)
	proxy := faultproxy.New(t, server.Endpoint)
	b := open(t, through(server.StoreURL(t), server.Endpoint, proxy.Addr()))
	fixture.Write(t, b, service("kept"))
	fixture.WatchChanges(t, b) // starts the feed
	server.Save(t)
	client := server.Client(t)
	for range 100 {
		if _, err := client.Put(fixture.Context(t), "other-program", ""); err != nil {
			t.Fatal(err)
		}
	}
	w := fixture.WatchChanges(t, b)
	proxy.Redirect(server.Restore(t).Endpoint)
	proxy.Cut()
	wantEnd(t, w)
}
