//go:build integration

package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrations"
)

// withoutHistory is the last schema version whose log forgot what is stored.
const withoutHistory = 6

// TestUpgradeToHistory brings a store to the version that can be read as it was. What is stored is its oldest state; a program of the
// version before can neither log nor delete any more.
func TestUpgradeToHistory(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	conn := server.Connect(t)
	schema := server.Schema(t)
	if _, err := migrations.Up(ctx, conn, schema, withoutHistory); err != nil {
		t.Fatal(err)
	}
	named := func(sql string) string {
		for _, table := range []string{"resources", "changes_seq", "changes", "store"} {
			sql = strings.ReplaceAll(sql, "$"+table, pgx.Identifier{schema, table}.Sanitize())
		}
		return sql
	}
	log := named(`insert into $changes (revision, place, more, op, key, version, token, data) select nextval('$changes_seq'), 0, false, 1, $1, $2, $2, $3`)
	const many = 40
	for i := range many {
		res := fixture.Resource(fmt.Sprintf("old-%02d", i), "v")
		data, err := codec.Encode(res)
		if err != nil {
			t.Fatal(err)
		}
		k, version := key.Of(res.Id).Bytes(), []byte(fmt.Sprintf("sixteen bytes %02d", i))
		if _, err := conn.Exec(ctx, named(`insert into $resources (key, uid, version, group_version, data) values ($1, $2, $3, 'v1', $4)`),
			k, []byte(res.Id.Uid), version, data); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := conn.Exec(ctx, log, k, version, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := fixture.Open(t, server.StoreURLIn(t, schema))
	h, ok := storage.As[history.Historian](b)
	if !ok {
		t.Fatal("the backend is no Historian")
	}
	oldest, newest, err := h.Revisions(ctx)
	if err != nil || oldest != newest {
		t.Fatalf("the revisions are %d to %d, expected one, %v", oldest, newest, err)
	}
	for i := range many {
		res := read(t, b, fixture.Resource(fmt.Sprintf("old-%02d", i), "").Id)
		if i%2 == 0 {
			fixture.Write(t, b, res)
		} else if err := b.DeleteCAS(ctx, res.Id, res.Version); err != nil {
			t.Fatal(err)
		}
	}
	scan, err := h.Scan(ctx, history.Span{}, history.ScanOptions{Revision: oldest})
	if err != nil || len(scan.Records) != many {
		t.Fatalf("%d resources at the oldest revision, expected %d, %v", len(scan.Records), many, err)
	}
	for i, r := range scan.Records {
		if name := fmt.Sprintf("old-%02d", i); r.Resource.Id.Name != name || r.Writes != 1 || r.Created != r.Modified || r.Modified > oldest {
			t.Errorf("record %d is %v, expected %s as it was numbered anew", i, r, name)
		}
	}

	if _, err := conn.Exec(ctx, log, []byte("k"), []byte("v"), []byte("d")); err == nil {
		t.Error("a program of the version before can log a change")
	}
	if _, err := conn.Exec(ctx, named(`delete from $changes where revision < (select horizon from $store)`)); err == nil {
		t.Error("a program of the version before can delete changes")
	}
}
