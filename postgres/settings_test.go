//go:build integration

package postgres_test

import (
	"net/url"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestSettingsOfSessions uses a store in sessions whose settings change the form of literals or of results, or the plans of statements,
// with prepared statements and without.
func TestSettingsOfSessions(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	for setting, modes := range map[string][]string{
		"standard_conforming_strings=off": {"cache_statement", "exec"},
		"datestyle=SQL,DMY":               {"cache_statement", "exec"},
		"bytea_output=escape":             {"cache_statement", "exec", "simple_protocol"},
		"enable_seqscan=off":              {"cache_statement"},
	} {
		for _, mode := range modes {
			t.Run(setting+"/"+mode, func(t *testing.T) {
				t.Parallel()
				useEverything(t, fixture.Open(t, server.StoreURL(t, "options="+url.QueryEscape("-c "+setting), "default_query_exec_mode="+mode)))
			})
		}
	}
}

// TestCollations uses stores in databases of other collations and encodings.
func TestCollations(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	for name, options := range map[string][]string{
		"ICU":       {"template template0 encoding utf8 locale_provider icu icu_locale 'tr-u-ks-level1' locale 'C'"},
		"LATIN1":    {"template template0 encoding latin1 locale 'C'"},
		"SQL_ASCII": {"template template0 encoding sql_ascii locale 'C'"},
	} {
		for _, mode := range []string{"cache_statement", "exec"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				useEverything(t, fixture.Open(t, server.Database(t, options...).StoreURL(t, "default_query_exec_mode="+mode)))
			})
		}
	}
}

// useEverything calls the methods of a backend. The names and data contain bytes that a literal would have to escape.
func useEverything(t *testing.T, b storage.Backend) {
	t.Helper()
	ctx := fixture.Context(t)
	w := fixture.WatchAll(t, b)
	endOfSnapshot(t, w)
	res := fixture.Resource(`a\b'cİ😀`, "\x00\\\xff'")
	first := fixture.Write(t, b, res)
	expect(t, "watch", w, first)
	stored := read(t, b, first.Id)
	if stored.Version != first.Version {
		t.Errorf("read version %q, expected %q", stored.Version, first.Version)
	}
	second := fixture.Write(t, b, stored)
	expect(t, "watch", w, second)
	cursor := w.Cursor()
	for _, partition := range []string{first.Id.Tenancy.GetPartition(), storage.Wildcard} {
		tenancy := &resourcepb.Tenancy{Partition: partition, Namespace: first.Id.Tenancy.GetNamespace()}
		list, err := b.List(ctx, storage.StrongConsistency, storage.UnversionedTypeFrom(first.Id.Type), tenancy, `a\`)
		if err != nil || len(list) != 1 || list[0].Version != second.Version {
			t.Errorf("list of partition %q: %v, %v", partition, list, err)
		}
	}
	pager, _ := storage.As[storage.Pager](b)
	page, err := pager.ListPage(ctx, fixture.AllTypes, fixture.AllTenancies, "a", storage.ListOptions{Limit: 1})
	if err != nil || len(page.Resources) != 1 {
		t.Errorf("page: %v, %v", page.Resources, err)
	}
	transactor, _ := storage.As[storage.Transactor](b)
	third, err := transactor.Commit(ctx, []storage.Op{{Write: second}, {Write: fixture.Resource("other", "v")}})
	if err != nil {
		t.Fatal(err)
	}
	resumed := resume(t, b, cursor)
	expect(t, "a resumed watch", resumed, third[0])
	if err := b.DeleteCAS(ctx, third[0].Id, third[0].Version); err != nil {
		t.Error(err)
	}
}
