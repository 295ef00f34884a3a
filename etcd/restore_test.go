//go:build integration

package etcd_test

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/faultproxy"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/internal/testenv"
)

// A backup that is restored as README.md says takes the store back, and nothing that a client has kept from after the backup
// fits what is there then.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	server := testenv.StartEtcdWithBackup(t)
	proxy := faultproxy.New(t, server.Endpoint)
	b := open(t, through(server.StoreURL(t), server.Endpoint, proxy.Addr()))

	kept := storetest.Write(t, b, service("kept"))
	changed := storetest.Write(t, b, service("changed"))
	w := storetest.WatchChanges(t, b)
	cursors := []string{w.Cursor()}
	server.Save(t)
	lost := storetest.Write(t, b, at(changed, changed.Version))
	gone := storetest.Write(t, b, service("gone"))
	wantNext(t, w, upserted(lost), upserted(gone))
	cursors = append(cursors, w.Cursor())

	proxy.Redirect(server.Restore(t, "--bump-revision=1000000000", "--mark-compacted").Endpoint)
	proxy.Cut()
	wantEnd(t, w)
	for i, cursor := range cursors {
		w, err := b.WatchFrom(storetest.Context(t), serviceType, tenancy, "", cursor)
		if err == nil {
			defer w.Close()
			_, err = w.Next(storetest.Context(t))
		}
		if !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("watching from cursor %d: %v, want ErrCompacted", i, err)
		}
	}

	if got := storetest.Stored(t, b, kept.Id); got == nil || got.Version != kept.Version {
		t.Errorf("what was not written after the backup is %v, want version %s", got, kept.Version)
	}
	if got := storetest.Stored(t, b, gone.Id); got != nil {
		t.Errorf("what was created after the backup is there: %v", got)
	}
	anew := storetest.WatchChanges(t, b)
	again := storetest.Write(t, b, at(changed, changed.Version))
	if _, err := b.WriteCAS(storetest.Context(t), at(lost, lost.Version)); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("writing over a version from after the backup: %v, want ErrCASFailure", err)
	}
	wantNext(t, anew, upserted(again))
}

// A watch may have begun at a revision that the feed has not come to, because others write to the cluster. If a backup from before is
// then restored as it is, the feed finds nothing missing of what it has published itself.
func TestRestoredBackupBeforeAWatch(t *testing.T) {
	t.Parallel()
	server := testenv.StartEtcdWithBackup(t)
	proxy := faultproxy.New(t, server.Endpoint)
	b := open(t, through(server.StoreURL(t), server.Endpoint, proxy.Addr()))
	storetest.Write(t, b, service("kept"))
	storetest.WatchChanges(t, b) // the feed begins
	server.Save(t)
	stranger := server.Client(t)
	for range 100 {
		if _, err := stranger.Put(storetest.Context(t), "stranger", ""); err != nil {
			t.Fatal(err)
		}
	}
	w := storetest.WatchChanges(t, b)
	proxy.Redirect(server.Restore(t).Endpoint)
	proxy.Cut()
	wantEnd(t, w)
}
