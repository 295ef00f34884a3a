//go:build integration

package postgres

import (
	"context"
	"crypto/md5"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage/driver"
)

// TestPlansOfApplyWhenGrown calls the function apply in a session while the tables have a few rows and Postgres has analyzed them,
// as autovacuum does after 50 changes of few rows. Then it lets the tables grow, and counts the pages that the same calls read.
func TestPlansOfApplyWhenGrown(t *testing.T) {
	t.Parallel()
	for _, small := range []int{0, 60} {
		// Not parallel: changes of other tests' tables may make Postgres plan again.
		t.Run(fmt.Sprint(small), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			t.Cleanup(cancel)
			s := newPlanned(ctx, t)
			s.grow(ctx, t, 0, small)
			s.analyze(ctx, t)
			kinds := []string{"create", "update", "delete", "check", "absent"}
			for range 10 {
				for _, kind := range kinds {
					s.tryApply(ctx, t, kind)
				}
			}
			s.grow(ctx, t, small, 20000)
			explain(ctx, t, s.conn)
			for _, kind := range kinds {
				s.tryApply(ctx, t, kind)
				plans := s.plans.take()
				if len(plans) < 5 {
					t.Errorf("%s: %d plans, expected those of the function's statements", kind, len(plans))
				}
				for _, plan := range plans {
					if pages := pagesOf(t, plan); pages > manyPages {
						t.Errorf("%s, %d pages:\n%s", kind, pages, plan)
					}
				}
			}
		})
	}
}

// grow stores resources with numbered names.
func (s *planned) grow(ctx context.Context, t *testing.T, from, to int) {
	t.Helper()
	s.exec(ctx, t, s.setUp, fmt.Sprintf(`with created as (
			insert into $resources (key, uid, version, group_version, data, created, writes, modified, modified_place)
			select convert_to('group/kind/old-' || n, 'UTF8'), 'uid', decode(md5(n::text), 'hex'), 'v1', 'data', revision, 1, revision, 0
			from (select n, nextval($seq_name) as revision from generate_series(%d + 1, %d) n) as numbered
			returning *
		)
		insert into $changes (revision, place, more, op, key, version, token, data, created, writes)
		select modified, 0, false, 1, key, version, version, data, created, 1 from created`, from, to))
}

// tryApply calls the function for a few resources, and rolls back, so that each call does the same.
func (s *planned) tryApply(ctx context.Context, t *testing.T, kind string) {
	t.Helper()
	ms := make([]*mutation, 3)
	for i := range ms {
		version := md5.Sum(fmt.Append(nil, i+1))
		m := &mutation{
			Mutation: &driver.Mutation{Uid: "uid"}, kind: kindWrite, keyBytes: fmt.Appendf(nil, "group/kind/old-%d", i+1), expectedVersion: version[:],
			token: fmt.Appendf(nil, "%016x", rand.Uint64()), groupVersion: []byte{}, data: []byte{},
		}
		switch kind {
		case "create", "absent":
			m.keyBytes, m.expectedVersion = fmt.Appendf(nil, "group/kind/new-%d", i), nil
		case "delete":
			m.kind = kindDelete
		}
		if kind == "check" || kind == "absent" {
			m.kind = kindCheck
		}
		ms[i] = m
	}
	in := columnsOf(ms)
	tx, err := s.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := tx.Query(ctx, s.sql.apply, rand.Int64(), time.Now().Add(time.Hour), true, in.keys, in.kinds, in.uids, in.expectedVersions, in.tokens,
		in.groupVersions, in.owners, in.data, pgtype.Text{}, pgtype.UUID{}, false, 0)
	rows.Close()
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
}
