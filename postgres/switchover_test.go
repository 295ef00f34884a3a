//go:build integration

package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestSwitchoverBehindPooler makes a pooler lead to a standby that lags, as after a switchover to which the pooler was not adapted.
// The pooler reports the role of its first server for ever, so each statement must find out by itself. No strong read, no bookmark
// and no read of a migration is answered there, and all are after the promotion.
func TestSwitchoverBehindPooler(t *testing.T) {
	t.Parallel()
	pair := env.StartPostgresPair(t)
	pooler := env.StartPgBouncer(t, pair.Primary)
	through := *pair.Primary
	through.URL = pooler.URL
	const schema = "store" // dropped with the servers
	b := fixture.Open(t, through.StoreURLIn(t, schema, "listen=off", "poll=50ms"))
	direct := fixture.Open(t, pair.Primary.StoreURLIn(t, schema))
	one := fixture.Write(t, b, fixture.Resource("one", "old"))
	fixture.Write(t, b, fixture.Resource("two", "old"))
	w := fixture.WatchAll(t, b)
	for fixture.Next(t, w).GetEndOfSnapshot() == nil {
		continue
	}
	pager, _ := storage.As[storage.Pager](b)
	historian, _ := storage.As[history.Historian](b)
	mover, _ := storage.As[driver.Mover](b)
	bulk, _ := storage.As[driver.Bulk](b)
	first, err := pager.ListPage(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{Limit: 1, Consistency: storage.StrongConsistency})
	if err != nil {
		t.Fatal(err)
	}
	pair.CatchUp(t)
	pair.Separate(t)
	// The standby does not have the following changes.
	one = fixture.Write(t, direct, one)
	owned := fixture.Resource("owned", "v")
	owned.Owner = one.Id
	owned = fixture.Write(t, direct, owned)
	directMover, _ := storage.As[driver.Mover](direct)
	if _, err := directMover.WriteNote(fixture.Context(t), "note", []byte("value"), ""); err != nil {
		t.Fatal(err)
	}

	stale := errors.New("stale")
	expectVersion := func(res *resourcepb.Resource, err error) error {
		if err == nil && res.Version != one.Version {
			return stale
		}
		return err
	}
	contains := func(all []*resourcepb.Resource, err error) error {
		for _, res := range all {
			if res.Version == owned.Version {
				return nil
			}
		}
		if err == nil {
			err = stale
		}
		return err
	}
	strong := storage.StrongConsistency
	calls := map[string]func(context.Context) error{
		"read": func(ctx context.Context) error { return expectVersion(b.Read(ctx, strong, one.Id)) },
		"reads at once": func(ctx context.Context) error {
			failures := make(chan error)
			for range 50 {
				go func() { failures <- expectVersion(b.Read(ctx, strong, one.Id)) }()
			}
			var all []error
			for range 50 {
				all = append(all, <-failures)
			}
			for _, err := range all {
				if err == nil || errors.Is(err, stale) {
					return err
				}
			}
			return all[0]
		},
		"list": func(ctx context.Context) error {
			return contains(b.List(ctx, strong, fixture.AllTypes, fixture.AllTenancies, ""))
		},
		"steps": func(ctx context.Context) error {
			return contains(b.List(ctx, strong, fixture.AllTypes, fixture.AllTenancies, "own"))
		},
		"range": func(ctx context.Context) error {
			return contains(b.List(ctx, strong, storage.UnversionedTypeFrom(owned.Id.Type), owned.Id.Tenancy, ""))
		},
		"page": func(ctx context.Context) error {
			page, err := pager.ListPage(ctx, fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{Consistency: strong})
			return contains(page.Resources, err)
		},
		"second page": func(ctx context.Context) error {
			_, err := pager.ListPage(ctx, fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{Consistency: strong, Continue: first.Continue})
			return err
		},
		"owner references": func(ctx context.Context) error {
			ids, err := b.OwnerReferences(ctx, one.Id)
			if err == nil && len(ids) == 0 {
				return stale
			}
			return err
		},
		"watch": func(ctx context.Context) error {
			w, err := b.WatchList(ctx, fixture.AllTypes, fixture.AllTenancies, "")
			if err != nil {
				return err
			}
			defer w.Close()
			for {
				event, err := w.Next(ctx)
				if err != nil {
					return err
				}
				if event.GetUpsert().GetResource().GetVersion() == owned.Version {
					return nil
				}
				if event.GetEndOfSnapshot() != nil {
					return stale
				}
			}
		},
		"bookmark": func(ctx context.Context) error {
			if err := w.(storage.Bookmarker).Bookmark(ctx); err != nil {
				return err
			}
			for {
				event, err := w.Next(ctx)
				if err != nil || event.GetBookmark() != nil {
					return err
				}
			}
		},
		"revisions": func(ctx context.Context) error {
			_, _, err := historian.Revisions(ctx)
			return err
		},
		"scan": func(ctx context.Context) error {
			_, err := historian.Scan(ctx, history.Range{}, history.ScanOptions{})
			return err
		},
		"note": func(ctx context.Context) error {
			value, _, err := mover.ReadNote(ctx, "note")
			if err == nil && value == nil {
				return stale
			}
			return err
		},
		"fence": func(ctx context.Context) error {
			_, err := mover.Fence(ctx)
			return err
		},
		"rows of a migration": func(ctx context.Context) error {
			rows, err := bulk.ReadAfter(ctx, nil, 10)
			if err == nil && len(rows) < 3 {
				return stale
			}
			return err
		},
	}

	pooler.Switch(t, pair.Standby)
	fixture.Eventually(t, "the pooler to use the standby", func() bool {
		conn, err := pgx.Connect(fixture.Context(t), pooler.URL)
		if err != nil {
			return false
		}
		defer conn.Close(context.Background())
		var standby bool
		return conn.QueryRow(fixture.Context(t), "select pg_is_in_recovery()", pgx.QueryExecModeExec).Scan(&standby) == nil && standby
	})
	var group sync.WaitGroup
	for name, call := range calls {
		group.Go(func() {
			err := call(fixture.CallTimeout(context.Background(), t, 5*time.Second))
			if !isInconsistent(err) && !(name == "bookmark" && errors.Is(err, context.DeadlineExceeded)) {
				t.Errorf("%s on a standby: %v, expected ErrInconsistent", name, err)
			}
		})
	}
	group.Wait()
	pair.Reunite(t)
	pair.CatchUp(t)
	pair.Primary.Kill(t)
	pair.Promote(t)
	for name, call := range calls {
		if err := call(fixture.Context(t)); err != nil {
			t.Errorf("%s after the promotion: %v", name, err)
		}
	}
}
