package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/migrate"
)

func storeCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Manage the identity of a store",
		Args:  cli.ExactArgs(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newIDCommand(a))
	return cmd
}

func newIDCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "new-id",
		Short: "Give a copied store an identity of its own",
		Long: `Give a copied store an identity of its own. A copy of a file or of a database has the identity of its original, so migrate takes both
for the same store. Run this on the copy. The target of an unfinished migration keeps its identity until that is aborted.`,
		Example:           "  ashlar store new-id --store sqlite:///var/lib/app/copy.db",
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, b storage.Backend) error {
				if err := migrate.NewIdentity(ctx, b); err != nil {
					return fmt.Errorf("store new-id: %w", err)
				}
				_, err := fmt.Fprintln(a.Out, "the store has a new identity")
				return err
			})
		},
	}
}
