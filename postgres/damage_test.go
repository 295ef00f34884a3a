//go:build integration

package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/damage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestDamage(t *testing.T) {
	t.Parallel()
	damage.Run(t, func(t *testing.T) damage.Harness {
		server := env.Postgres(t)
		schema := server.Schema(t)
		b := fixture.Open(t, server.StoreURLIn(t, schema))
		conn := server.Connect(t)
		in := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
		return damage.Harness{Backend: b, Replace: func(t *testing.T, id *resourcepb.ID, data []byte) {
			_, err := conn.Exec(fixture.Context(t), `
with version as (select decode(md5(random()::text), 'hex') as v),
     numbered as materialized (select nextval('`+in("changes_seq")+`') as next),
     last as (select revision, place from `+in("changes")+` where key = $1 order by revision desc limit 1),
     changed as (
         update `+in("resources")+` as resource set version = v, data = $2, created = coalesce(resource.created, last.revision), writes = coalesce(writes, 1) + 1,
             modified = next, modified_place = 0
         from version, numbered, last where key = $1
     )
insert into `+in("changes")+` (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
select next, 0, false, 1, $1, v, v, $2, last.revision, 2, last.revision, last.place from version, numbered, last`, key.Of(id).Bytes(), data)
			if err != nil {
				t.Fatal(err)
			}
		}}
	})
}
