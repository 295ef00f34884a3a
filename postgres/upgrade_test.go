//go:build integration

package postgres_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrations"
	"github.com/ashlar-dev/storage/resourcepb"
)

// snapshotSchema is the last version of the schema whose positions are snapshots of transactions, and snapshotCursor makes a
// cursor as programs of that time did.
const snapshotSchema = 4

func snapshotCursor(store [16]byte, snapshot string) string {
	token := append([]byte{'w'}, store[:]...)
	token = binary.AppendVarint(token, 0)
	token = append(token, snapshot+";"...)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(token, crc32.ChecksumIEEE(token)))
}

// TestUpgradeFromSnapshots brings a store with data and history to the present version, by several handles at once: the data
// is as it was, and cursors from before say that history begins anew.
func TestUpgradeFromSnapshots(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	conn := server.Connect(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	if _, err := migrations.Up(ctx, conn, schema, snapshotSchema); err != nil {
		t.Fatal(err)
	}
	table := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(ctx, sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	var want []*resourcepb.Resource
	for i := range 300 {
		want = append(want, fixture.Resource(fmt.Sprintf("old-%03d", i), fmt.Sprint("payload ", i)))
	}
	insert := "insert into " + table("resources") + " (key, uid, version, group_version, data) values ($1, $2, $3, 'v1', $4)"
	logged := "insert into " + table("changes") + " (seq, op, key, version, token, data) values (nextval('" + table("changes_seq") + "'), $1, $2, $3, $4, $5)"
	for i, res := range want {
		data, err := codec.Encode(res)
		if err != nil {
			t.Fatal(err)
		}
		token := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 8)
		k := key.Of(res.Id).Bytes()
		exec(insert, k, []byte(res.Id.Uid), token, data)
		exec(logged, 1, k, token, token, data)
		res.Version = base64.RawURLEncoding.EncodeToString(token)
	}
	// Something was deleted, and something was written more than once.
	gone, err := codec.Encode(fixture.Resource("gone", "v"))
	if err != nil {
		t.Fatal(err)
	}
	for op := range 2 {
		exec(logged, op+1, key.Of(fixture.Resource("gone", "").Id).Bytes(), []byte("sixteen bytes 1."), []byte("sixteen bytes 2."), gone)
	}
	exec("insert into " + table("journal") + " (name, value) values ('note', 'kept')")
	var store [16]byte
	var snapshot string
	if err := conn.QueryRow(ctx, "select id, pg_current_snapshot()::text from "+table("store")).Scan(&store, &snapshot); err != nil {
		t.Fatal(err)
	}

	handles := make([]storage.Backend, 4)
	var group sync.WaitGroup
	for i := range handles {
		group.Go(func() {
			var err error
			if handles[i], err = storage.Open(ctx, storeURL); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	for i, b := range handles {
		t.Cleanup(func() { b.Close() })
		listed, err := b.List(ctx, storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
		if err != nil || len(listed) != len(want) {
			t.Fatalf("handle %d: %d resources after the upgrade, expected %d, %v", i, len(listed), len(want), err)
		}
		byName := map[string]*resourcepb.Resource{}
		for _, res := range listed {
			byName[res.Id.Name] = res
		}
		for _, res := range want {
			if got := byName[res.Id.Name]; !proto.Equal(got, res) {
				t.Fatalf("handle %d: after the upgrade: %v, expected %v", i, got, res)
			}
		}
		if _, err := b.Read(ctx, storage.StrongConsistency, fixture.Resource("gone", "").Id); err == nil {
			t.Error("what was deleted is back")
		}
	}
	var note string
	if err := conn.QueryRow(ctx, "select convert_from(value, 'UTF8') from "+table("journal")+" where name = 'note'").Scan(&note); err != nil || note != "kept" {
		t.Errorf("the journal's note is %q, %v", note, err)
	}

	compacted(t, "a cursor from before the upgrade", handles[0], snapshotCursor(store, snapshot))

	// Old versions are those to compare with, and new history has cursors.
	w := fixture.WatchAll(t, handles[1])
	for fixture.Next(t, w).GetEndOfSnapshot() == nil {
		continue
	}
	cursor := w.Cursor()
	updated := fixture.Write(t, handles[0], want[1])
	expect(t, "a watch after the upgrade", w, updated)
	if err := handles[2].DeleteCAS(context.WithoutCancel(ctx), want[2].Id, want[2].Version); err != nil {
		t.Error(err)
	}
	expect(t, "resumed after the upgrade", resume(t, handles[3], cursor), updated)
}
