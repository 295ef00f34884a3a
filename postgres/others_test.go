//go:build integration

package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestOthersUnderWay checks that a statement reports whether all changes with lower numbers than its own are visible or never will
// be. It must not report that while another session holds an earlier note, whether that session has drawn a number or is about to.
func TestOthersUnderWay(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx)
	h := b.handle
	conn, other := acquire(t, ctx, h.database.main), acquire(t, ctx, h.database.main)
	versions := map[string]*resourcepb.Resource{}
	mutations := func(n int) (ms []*mutation) {
		for i := range n {
			k := key.Key{Group: "g", Kind: "Kind", Name: fmt.Sprint(i)}
			if versions[k.Name] == nil {
				stored, err := b.WriteCAS(ctx, &resourcepb.Resource{Id: k.ID("uid", "v1")})
				if err != nil {
					t.Fatal(err)
				}
				versions[k.Name] = stored
			}
			m, err := newWrite(k, versions[k.Name])
			if err != nil {
				t.Fatal(err)
			}
			m.Exclusive = true
			ms = append(ms, m)
		}
		slices.SortFunc(ms, func(x, y *mutation) int { return bytes.Compare(x.keyBytes, y.keyBytes) })
		return ms
	}
	check := func(when string, want bool) {
		t.Helper()
		a := &attempt{expires: time.Now().Add(time.Hour)}
		one, many := mutations(1), mutations(3)[1:]
		if err := h.changeOne(ctx, conn.Conn(), a, one[0]); err != nil {
			t.Fatal(err)
		}
		if err := h.updateMany(ctx, conn.Conn(), a, many); err != nil {
			t.Fatal(err)
		}
		all := append(one, many...)
		alone := func(m *mutation) error { return h.changeOne(ctx, conn.Conn(), a, m) }
		among := func(m *mutation) error { return h.apply(ctx, conn.Conn(), a, []*mutation{m}, false) }
		var last *mutation
		for _, remove := range []func(*mutation) error{alone, among} {
			created, deleted := creationAndDeletion(t, "fresh")
			if err := among(created); err != nil {
				t.Fatal(err)
			}
			if err := remove(deleted); err != nil {
				t.Fatal(err)
			}
			all, last = append(all, created, deleted), deleted
		}
		for _, m := range all {
			if !m.isApplied || m.isFinal != want {
				t.Errorf("%s: applied: %v, final: %v, expected %v", when, m.isApplied, m.isFinal, want)
			}
			if stored := versions[m.Key.Name]; stored != nil {
				stored.Version = versionText(m.token)
			}
		}
		final, there, err := h.finality.checkAttempt(ctx, conn.Conn(), last.revision)
		if err != nil || !there || final >= last.revision != want {
			t.Errorf("%s: the history is final up to %d, after the change %d: %v", when, final, last.revision, err)
		}
	}
	execute := func(sql string) {
		t.Helper()
		if _, err := other.Exec(ctx, h.database.sql.withNames(sql)); err != nil {
			t.Fatal(err)
		}
	}
	check("no other session writes", true)
	execute("begin")
	execute(note)
	check("another session has made its note", false)
	execute("select nextval($seq_name)")
	check("another session has drawn a number", false)
	execute("rollback")
	check("it has rolled back", true)
}

// creationAndDeletion returns two mutations of one resource that report on other sessions.
func creationAndDeletion(t *testing.T, name string) (created, deleted *mutation) {
	t.Helper()
	k := key.Key{Group: "g", Kind: "Kind", Name: name}
	created, err := newWrite(k, &resourcepb.Resource{Id: k.ID("uid", "v1")})
	if err != nil {
		t.Fatal(err)
	}
	deleted, err = newMutation(&driver.Mutation{Verb: driver.Delete, Key: k, Uid: "uid", Version: string(versionText(created.token)), Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	created.Exclusive = true
	return created, deleted
}

// acquire takes a connection for the duration of a test.
func acquire(t *testing.T, ctx context.Context, pool *pgxpool.Pool) *pgxpool.Conn {
	t.Helper()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return conn
}
