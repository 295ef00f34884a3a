package migratecmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/resourcepb"
)

func addAllowEmpty(cmd *cobra.Command, allow *bool) {
	cmd.Flags().BoolVar(allow, "allow-empty", false, "accept a source without resources")
}

// refuseEmpty returns an error if the store has no resources: its URL is probably not the intended one.
func refuseEmpty(ctx context.Context, b storage.Backend) error {
	everything := storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	everywhere := &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
	var found []*resourcepb.Resource
	var err error
	if pager, ok := storage.As[storage.Pager](b); ok {
		var page storage.Page
		page, err = pager.ListPage(ctx, everything, everywhere, "", storage.ListOptions{Consistency: storage.StrongConsistency, Limit: 1})
		found = page.Resources
	} else {
		found, err = b.List(ctx, storage.StrongConsistency, everything, everywhere, "")
	}
	if err == nil && len(found) == 0 {
		err = cli.Failedf("the store has no resources; check its URL, or accept this with --allow-empty")
	}
	return err
}

// refuseEmptySource is refuseEmpty for the source of a migration that has not begun yet, or that is complete.
func refuseEmptySource(ctx context.Context, from, to storage.Backend) error {
	status, err := migrate.ReadStatus(ctx, to)
	if err != nil && !errors.Is(err, migrate.ErrUnsupported) || status != nil && status.Phase != migrate.Complete {
		return err
	}
	return refuseEmpty(driver.WithMovedReads(ctx), from)
}
