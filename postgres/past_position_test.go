//go:build integration

package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

var everything = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}

func named(name, payload string) *resourcepb.Resource {
	return &resourcepb.Resource{Id: key.Key{Group: "g", Kind: "Kind", Name: name}.ID("uid", "v1"), Metadata: map[string]string{"v": payload}}
}

func namesOf(resources []*resourcepb.Resource) string {
	var names []string
	for _, res := range resources {
		names = append(names, res.Id.Name+"="+res.Metadata["v"])
	}
	return strings.Join(names, " ")
}

// TestListingBesideStalledCommit lists while a commit stalls, with a later change behind it. A strong listing waits for the commit,
// as does a result with a revision. An eventual one does not wait, and returns the visible state. It continues at exactly this state
// when the commit has succeeded and everything has been changed since.
func TestListingBesideStalledCommit(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	_, b, _, commit := heldBack(t, ctx)
	anywhere := &resourcepb.Tenancy{}
	short := fixture.CallTimeout(ctx, t, 300*time.Millisecond)
	strong := storage.ListOptions{Consistency: storage.StrongConsistency, Limit: 1}
	if page, err := b.ListPage(short, everything, anywhere, "", strong); !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("a strong page while a lower change may appear: %v, %v", page.Resources, err)
	}
	page, err := b.ListPage(ctx, everything, anywhere, "", storage.ListOptions{Consistency: storage.EventualConsistency, Limit: 1})
	if err != nil || namesOf(page.Resources) != "before=" && namesOf(page.Resources) != "behind=" {
		t.Fatalf("the first page: %v, %v", page.Resources, err)
	}
	waiting, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	if _, newest, err := b.handle.Revisions(waiting); !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("the newest revision is %d while a lower one may appear: %v", newest, err)
	}
	commit()
	all, err := b.List(ctx, storage.StrongConsistency, everything, anywhere, "")
	if err != nil || len(all) != 3 {
		t.Fatalf("after the commit: %v, %v", all, err)
	}
	for _, res := range all {
		if res.Id.Name == "before" {
			err = b.DeleteCAS(ctx, res.Id, res.Version)
		} else {
			res.Metadata = map[string]string{"v": "later"}
			_, err = b.WriteCAS(ctx, res)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := namesOf(page.Resources)
	for page.Continue != "" {
		page, err = b.ListPage(ctx, everything, anywhere, "", storage.ListOptions{Limit: 1, Continue: page.Continue})
		if err != nil {
			t.Fatal(err)
		}
		got += " " + namesOf(page.Resources)
	}
	if got != "before= behind=" {
		t.Errorf("listed %s, expected the state that was visible when the listing began", got)
	}
	if _, newest, err := b.handle.Revisions(ctx); err != nil || newest < 6 {
		t.Errorf("the newest revision is %d, %v", newest, err)
	}
}

// TestForgedPositions reads at positions that were never returned: each is refused, and none is mistaken for another.
func TestForgedPositions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx)
	if _, err := b.Commit(ctx, []storage.Op{{Write: named("x", "")}, {Write: named("y", "")}}); err != nil {
		t.Fatal(err)
	}
	at, err := b.handle.source.history.newest(ctx, b.handle.database.main)
	if err != nil {
		t.Fatal(err)
	}
	inside, err := b.handle.source.history.newest(ctx, b.handle.database.main)
	if err != nil {
		t.Fatal(err)
	}
	inside.index--
	sql := b.handle.database.sql.withNames(`select substr(token, 1, 8) from $changes where revision = $1 and place = $2`)
	var piece []byte
	if err := b.handle.database.main.QueryRow(ctx, sql, inside.revision, inside.index).Scan(&piece); err != nil {
		t.Fatal(err)
	}
	copy(inside.tokenPrefix[:], piece)
	other, later, ahead := at, at, at
	other.tokenPrefix[3]++
	later.revision++
	ahead.revision, ahead.index, ahead.tokenPrefix = 2, 0, [8]byte{}
	ahead.aboveFrontier = []numberRange{{3, 4}}
	soon, never := at, at // with the digest of no changes
	soon.aboveFrontier, never.aboveFrontier = []numberRange{{at.revision + 1, at.revision + 5000}}, []numberRange{{at.revision + 1, math.MaxInt64}}
	nothing := sha256.Sum256(nil)
	copy(soon.aboveFrontierDigest[:], nothing[:])
	never.aboveFrontierDigest = soon.aboveFrontierDigest
	for name, forged := range map[string]position{
		"inside a commit": inside, "of another history": other, "not there yet": later, "with changes ahead": ahead,
		"with changes ahead that are to come": soon, "with all changes ahead": never,
	} {
		_, err := b.handle.ReadAt(ctx, &driver.HistoryQuery[position]{At: &forged}, func(v *driver.Version) error {
			return fmt.Errorf("%s: read %s", name, v.Key)
		})
		if !errors.Is(err, storage.ErrCompacted) && !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a position %s: %v", name, err)
		}
	}
}

// TestHotKey reads at a revision before very many changes of one resource: a page needs some index probes instead of a read of each
// change.
func TestHotKey(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx)
	hot, err := b.WriteCAS(ctx, named("hot", ""))
	if err != nil {
		t.Fatal(err)
	}
	at, err := b.handle.source.history.newest(ctx, b.handle.database.main)
	if err != nil {
		t.Fatal(err)
	}
	const versions = 100_000
	main, sql := b.handle.database.main, b.handle.database.sql
	for _, statement := range []string{
		`insert into $changes (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
select next, 0, false, 1, 'g' || '\x00'::bytea || 'Kind' || '\x000000'::bytea || 'hot', decode(md5(next::text), 'hex'), decode(md5(next::text), 'hex'), '', $1, next - $1 + 1, next - 1, 0
from (select nextval($seq_name) as next from generate_series(1, ` + fmt.Sprint(versions) + `)) as numbered`,
		`update $resources set created = $1, writes = 1 + ` + fmt.Sprint(versions) + `, modified = $1 + ` + fmt.Sprint(versions) + `, modified_place = 0 where key like '%hot'`,
	} {
		if _, err := main.Exec(ctx, sql.withNames(strings.ReplaceAll(statement, "$1", fmt.Sprint(at.revision)))); err != nil {
			t.Fatal(err)
		}
	}
	var version string
	_, err = b.handle.ReadAt(ctx, &driver.HistoryQuery[position]{At: &at}, func(v *driver.Version) error {
		if strings.HasSuffix(string(v.Key), "hot") {
			version = string(v.Version)
		}
		return nil
	})
	if err != nil || version != hot.Version {
		t.Errorf("read version %s, expected %s: %v", version, hot.Version, err)
	}
	conn, err := main.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	touched := func() (n int64) {
		t.Helper()
		err := conn.QueryRow(ctx, sql.withNames(`select pg_stat_get_xact_tuples_fetched(oid) from pg_class where oid = $changes_name::regclass`)).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, err := conn.Exec(ctx, "begin"); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = conn.Exec(ctx, "rollback") }()
	for _, before := range []int64{0, versions / 2, versions - 100} {
		began := touched()
		var revision int64
		err := conn.QueryRow(ctx, sql.withNames(`select revision from $past('g' || '\x00'::bytea || 'Kind' || '\x000000'::bytea || 'hot', $1, 0, '{}')`), at.revision+before).Scan(&revision)
		if looked := touched() - began; err != nil || revision != at.revision+before || looked > 40 {
			t.Errorf("found version %d of %d after reading %d rows: %v", revision, at.revision+before, looked, err)
		}
	}
}

// TestPruneTogether runs several processes that delete superfluous changes, beside a writer and a reader at a retained revision.
// Some of the processes end in the middle of a step.
func TestPruneTogether(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	b := openHandle(t, ctx, env.Postgres(t).StoreURL(t))
	h := b.handle
	stored := map[string]*resourcepb.Resource{}
	write := func(round, i int) {
		t.Helper()
		res := named(fmt.Sprint("key-", i), fmt.Sprint(round))
		if old := stored[res.Id.Name]; old != nil {
			res.Version = old.Version
		}
		written, err := b.WriteCAS(ctx, res)
		if err != nil {
			t.Fatal(err)
		}
		stored[res.Id.Name] = written
	}
	const keys, rounds = 10, 12
	for round := range rounds {
		for i := range keys {
			write(round, i)
		}
		if deleted := stored["key-3"]; round%3 == 0 {
			if err := b.DeleteCAS(ctx, deleted.Id, deleted.Version); err != nil {
				t.Fatal(err)
			}
			delete(stored, "key-3")
		}
		_, revision, err := h.Revisions(ctx)
		if err != nil {
			t.Fatal(err)
		}
		list := func() string {
			page, err := b.ListPage(ctx, everything, &resourcepb.Tenancy{}, "", storage.ListOptions{Revision: revision})
			if err != nil {
				t.Fatal(err)
			}
			return namesOf(page.Resources)
		}
		want := list()
		if err := h.Compact(ctx, revision); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for n := range 4 {
			group.Go(func() {
				r := &retention{h.database, h.source.history}
				if n%2 == 0 { // killed before its commit
					tx, err := h.database.main.Begin(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					_, err = r.prune(ctx, tx)
					if err := errors.Join(err, tx.Rollback(ctx)); err != nil {
						t.Error(err)
					}
					return
				}
				for more := true; more; {
					var err error
					if more, err = r.pruneOnce(ctx, time.Hour); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		write(round, 0)
		if got := list(); got != want {
			t.Errorf("during the deletion of superfluous changes: %s, expected %s", got, want)
		}
		group.Wait()
		if got := list(); got != want {
			t.Errorf("after the deletion of superfluous changes: %s, expected %s", got, want)
		}
	}
	if _, err := h.PositionAt(ctx, 2); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a compacted revision: %v", err)
	}
	var left int
	if err := h.database.main.QueryRow(ctx, h.database.sql.withNames(`select count(*) from $changes`)).Scan(&left); err != nil || left > keys+3 {
		t.Errorf("%d changes remain of %d resources: %v", left, keys, err)
	}
}
