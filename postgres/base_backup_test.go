//go:build integration

package postgres_test

import (
	"errors"
	"net"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestRestoredBaseBackup starts a server from a base backup, and lets its history pass the one of the original. Both have the same store,
// the same timeline and the same numbers. A cursor from before the backup is valid, a cursor of a lost change is not.
func TestRestoredBaseBackup(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.StartPostgres(t).Direct(t)
	schema := server.Schema(t)
	original := fixture.Open(t, server.StoreURLIn(t, schema))
	kept := fixture.Write(t, original, fixture.Resource("kept", "v"))
	w := fixture.WatchChanges(t, original)
	saved := w.Cursor()

	server.BackUp(t, "/tmp/copy")
	server.Exec(t, "sh", "-c", "cp $PGDATA/pg_wal/0* /tmp/copy/pg_wal/ && chown -R postgres /tmp/copy")
	var lost string
	for range 3 {
		kept = fixture.Write(t, original, kept)
		expect(t, "the original", w, kept)
		lost = w.Cursor()
	}

	server.Exec(t, "sh", "-c", "su postgres -s /bin/sh -c \"PATH=$PATH pg_ctl -D /tmp/copy -o '-p 5433 -c listen_addresses=0.0.0.0' -l /tmp/copy/log -w start\"")
	host, _, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if ip := server.IP(t); ip != "" {
		host = ip
	}
	restored := fixture.Open(t, server.At(t, net.JoinHostPort(host, "5433")).StoreURLIn(t, schema, "create=off"))
	current := read(t, restored, kept.Id)
	if current.Version == kept.Version {
		t.Fatal("the backup contains a change that was made after it")
	}
	var fresh []*resourcepb.Resource
	for range 5 {
		current = fixture.Write(t, restored, current)
		fresh = append(fresh, current)
	}
	if _, err := resume(t, restored, lost).Next(ctx); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("resumed from a lost change: %v, expected ErrCompacted", err)
	}
	resumed := resume(t, restored, saved)
	for _, want := range fresh {
		expect(t, "resumed from before the backup", resumed, want)
	}
	if _, err := restored.WriteCAS(ctx, kept); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("a write of a lost version: %v, expected ErrCASFailure", err)
	}
}
