package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// allCalls returns one call of every method, with valid arguments.
func allCalls(s *suite, stored *resourcepb.Resource, cursor string) map[string]func(ctx context.Context) error {
	calls := map[string]func(ctx context.Context) error{
		"Read": func(ctx context.Context) error {
			_, err := s.b.Read(ctx, eventual, stored.Id)
			return err
		},
		"strong Read": func(ctx context.Context) error {
			_, err := s.b.Read(ctx, strong, stored.Id)
			return err
		},
		"WriteCAS": func(ctx context.Context) error {
			_, err := s.b.WriteCAS(ctx, withNewData(stored))
			return err
		},
		"DeleteCAS": func(ctx context.Context) error { return s.b.DeleteCAS(ctx, stored.Id, stored.Version) },
		"List": func(ctx context.Context) error {
			_, err := s.b.List(ctx, eventual, things, home, "")
			return err
		},
		"strong List": func(ctx context.Context) error {
			_, err := s.b.List(ctx, strong, things, home, "")
			return err
		},
		"WatchList": func(ctx context.Context) error {
			w, err := s.b.WatchList(ctx, things, home, "")
			if err == nil {
				w.Close()
			}
			return err
		},
		"OwnerReferences": func(ctx context.Context) error {
			_, err := s.b.OwnerReferences(ctx, stored.Id)
			return err
		},
	}
	if pager, ok := storage.As[storage.Pager](s.b); ok {
		calls["ListPage"] = func(ctx context.Context) error {
			_, err := pager.ListPage(ctx, things, home, "", storage.ListOptions{Limit: 1})
			return err
		}
	}
	if resumer, ok := storage.As[storage.Resumer](s.b); ok {
		calls["WatchFrom"] = func(ctx context.Context) error {
			w, err := resumer.WatchFrom(ctx, things, home, "", cursor)
			if err == nil {
				w.Close()
			}
			return err
		}
	}
	if transactor, ok := storage.As[storage.Transactor](s.b); ok {
		calls["Commit"] = func(ctx context.Context) error {
			_, err := transactor.Commit(ctx, []storage.Op{{Write: withNewData(stored)}})
			var op *storage.OpError
			if errors.As(err, &op) {
				return fmt.Errorf("no operation caused this, yet it is an OpError: %s", err)
			}
			return err
		}
	}
	return calls
}
