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

// TestOthersUnderWay has a statement say whether all changes with lower numbers than its own are there or never will be: not while another
// session holds a note from before, whether it has drawn a number or is about to.
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
			m.Alone = true
			ms = append(ms, m)
		}
		slices.SortFunc(ms, func(x, y *mutation) int { return bytes.Compare(x.keyBytes, y.keyBytes) })
		return ms
	}
	check := func(when string, want bool) {
		t.Helper()
		a := &attempt{expires: time.Now().Add(time.Hour)}
		one, many := mutations(1), mutations(3)[1:]
		if err := h.updateOne(ctx, conn.Conn(), a, one[0]); err != nil {
			t.Fatal(err)
		}
		if err := h.updateMany(ctx, conn.Conn(), a, many); err != nil {
			t.Fatal(err)
		}
		all := append(one, many...)
		fresh := key.Key{Group: "g", Kind: "Kind", Name: "fresh"}
		created, err := newWrite(fresh, &resourcepb.Resource{Id: fresh.ID("uid", "v1")})
		if err != nil {
			t.Fatal(err)
		}
		deleted, err := newMutation(&driver.Mutation{
			Verb: driver.Delete, Key: fresh, Uid: "uid", Version: string(versionText(created.token)), Alone: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		created.Alone = true
		for _, m := range []*mutation{created, deleted} {
			if err := h.apply(ctx, conn.Conn(), a, []*mutation{m}, false); err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
		for _, m := range all {
			if !m.applied || m.settled != want {
				t.Errorf("%s: applied: %v, settled: %v, expected %v", when, m.applied, m.settled, want)
			}
			if stored := versions[m.Key.Name]; stored != nil {
				stored.Version = versionText(m.token)
			}
		}
		final, there, err := h.lookout.lookOnce(ctx, conn.Conn(), deleted.revision)
		if err != nil || !there || final >= deleted.revision != want {
			t.Errorf("%s: all is final up to %d, after the change %d: %v", when, final, deleted.revision, err)
		}
	}
	execute := func(sql string) {
		t.Helper()
		if _, err := other.Exec(ctx, h.database.sql.named(sql)); err != nil {
			t.Fatal(err)
		}
	}
	check("nobody else writes", true)
	execute("begin")
	execute(note)
	check("another session has made its note", false)
	execute("select nextval($seq_name)")
	check("another session has drawn a number", false)
	execute("rollback")
	check("it has given up", true)
}

// acquire takes a connection for the time of a test.
func acquire(t *testing.T, ctx context.Context, pool *pgxpool.Pool) *pgxpool.Conn {
	t.Helper()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return conn
}
