//go:build integration

package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/damagetest"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestDamage(t *testing.T) {
	t.Parallel()
	damagetest.Run(t, func(t *testing.T) damagetest.Harness {
		server := testenv.Postgres(t)
		schema := server.Schema(t)
		b := storetest.Open(t, server.StoreURLIn(t, schema))
		conn := server.Connect(t)
		in := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
		return damagetest.Harness{Backend: b, Replace: func(t *testing.T, id *resourcepb.ID, data []byte) {
			_, err := conn.Exec(storetest.Context(t), `
with version as (select decode(md5(random()::text), 'hex') as v),
     changed as (update `+in("resources")+` set version = v, data = $2 from version where key = $1)
insert into `+in("changes")+` (revision, place, more, op, key, version, token, data)
select nextval('`+in("changes_seq")+`'), 0, false, 1, $1, v, v, $2 from version`, key.Of(id).Bytes(), data)
			if err != nil {
				t.Fatal(err)
			}
		}}
	})
}
