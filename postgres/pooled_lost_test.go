//go:build integration

package postgres_test

import (
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestLostAnswerAfterLostCommits replaces the database behind a pooler by an older copy, whose next changes get numbers that the
// program's session with the pooler considers old. The answer to a write is lost there, and other writers continue from its
// version. The write nevertheless succeeded.
func TestLostAnswerAfterLostCommits(t *testing.T) {
	t.Parallel()
	server := env.StartPostgres(t)
	pooler := env.StartPgBouncer(t, server)
	for _, call := range []string{"create", "update", "commit"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			lostAfterLost(t, server, pooler, call)
		})
	}
}

func lostAfterLost(t *testing.T, server *env.PostgresServer, pooler *env.PgBouncerServer, call string) {
	ctx := fixture.Context(t)
	database := server.Database(t)
	path := parseURL(t, database.URL).Path
	name := strings.TrimPrefix(path, "/")
	proxy := faultproxy.New(t, pooler.Addr)
	pooled := parseURL(t, pooler.URL)
	pooled.Host, pooled.Path = proxy.Addr(), path
	pooled.RawQuery += "&" + url.Values{"schema": {"store"}, "listen": {"off"}, "poll": {"1h"}, "pool_max_conns": {"1"}}.Encode()
	admin := server.Connect(t)
	alone := func(sql string) {
		t.Helper()
		fixture.Eventually(t, "nobody else to use the database", func() bool {
			if _, err := admin.Exec(ctx, "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '"+name+"'"); err != nil {
				t.Fatal(err)
			}
			_, err := admin.Exec(ctx, sql)
			return err == nil
		})
	}
	t.Cleanup(func() { _, _ = admin.Exec(fixture.Context(t), "drop database if exists "+name+"_lost with (force)") })

	b := fixture.Open(t, pooled.String())
	kept, lost := fixture.Write(t, b, fixture.Resource("kept", "v")), fixture.Write(t, b, fixture.Resource("lost", "v"))
	alone("create database " + name + "_copy template " + name)
	for range 9 {
		lost = fixture.Write(t, b, lost)
	}
	alone("alter database " + name + " rename to " + name + "_lost")
	if _, err := admin.Exec(ctx, "alter database "+name+"_copy rename to "+name); err != nil {
		t.Fatal(err)
	}

	other := fixture.Open(t, database.StoreURLIn(t, "store", "listen=off"))
	payload := "payload" + unique()
	trap := proxy.HoldAnswer([]byte(hex.EncodeToString([]byte(payload)))) // through a pooler values are text
	written := fixture.Resource("new", payload)
	if call == "update" {
		written = fixture.Resource("kept", payload)
		written.Version = kept.Version
	}
	type answer struct {
		version string
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		var res *resourcepb.Resource
		var err error
		if call == "commit" {
			transactor, _ := storage.As[storage.Transactor](b)
			var results []*resourcepb.Resource
			results, err = transactor.Commit(ctx, []storage.Op{{Write: written}, {Check: kept.Id, Version: kept.Version}})
			if err == nil {
				res = results[0]
			}
		} else {
			res, err = b.WriteCAS(ctx, written)
		}
		answered <- answer{res.GetVersion(), err}
	}()
	var stored *resourcepb.Resource
	fixture.Eventually(t, "the write to happen", func() bool {
		var err error
		stored, err = other.Read(ctx, storage.StrongConsistency, written.Id)
		return err == nil && string(stored.GetData().GetValue()) == payload
	})
	sprung(t, trap)
	version := stored.Version
	if err := other.DeleteCAS(ctx, stored.Id, stored.Version); err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, other, fixture.Resource(written.Id.Name, "v"))
	trap.Cut()
	if got := <-answered; got.err != nil || got.version != version {
		t.Errorf("the write returned %q, %v; it was stored at %q", got.version, got.err, version)
	}
}
