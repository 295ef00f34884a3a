//go:build integration

package postgres_test

import (
	"flag"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestMain(m *testing.M) {
	if faults.ServeProcess() {
		return
	}
	// Many of these tests wait for a fault to last. An explicit flag takes precedence, because it is parsed later.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	env.Main(m)
}

func TestConformance(t *testing.T) {
	server := env.Postgres(t)
	var schemas sync.Map // by URL
	conformance.Run(t, conformance.Harness{
		URL: func(t testing.TB) string {
			schema := server.Schema(t)
			url := server.StoreURLIn(t, schema)
			schemas.Store(url, schema)
			return url
		},
		Processes: true,
		Replace: func(t testing.TB, storeURL string, id *resourcepb.ID, data []byte) {
			schema, _ := schemas.Load(storeURL)
			in := func(name string) string { return pgx.Identifier{schema.(string), name}.Sanitize() }
			_, err := server.Connect(t).Exec(t.Context(), `
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
		},
	})
}
