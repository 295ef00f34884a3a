package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

func deleteCommand(a *cli.App) *cobra.Command {
	var where tenancy
	var version string
	var cascade bool
	cmd := &cobra.Command{
		Use:   "delete TYPE NAME",
		Short: "Delete a resource, with --cascade also the resources it owns",
		Long: `Delete a resource. The resources it owns stay, unless --cascade deletes them as well, directly and indirectly. Owned resources are
deleted before their owners, so an interrupted cascade can be repeated. Resources that move to another owner meanwhile stay. A damaged
resource, which cannot be read, is deleted like any other.`,
		Example: `  ashlar delete core/ConfigMap settings -n shop
  ashlar delete apps/Deployment storefront --cascade`,
		Args:              cli.ExactArgs("TYPE", "NAME"),
		ValidArgsFunction: completeNames(a, &where),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := where.id(args[0], args[1])
			if err != nil {
				return err
			}
			hasVersion := cmd.Flags().Changed("version")
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, backend storage.Backend) error {
				stored, err := read(ctx, backend, id)
				var damaged *storage.DamagedError
				if errors.As(err, &damaged) && damaged.Version != "" {
					stored, err = &resourcepb.Resource{Id: damaged.ID, Version: damaged.Version}, nil
				}
				if err == nil && hasVersion && stored.GetVersion() != version {
					err = storage.ErrCASFailure
				}
				if err != nil {
					return fmt.Errorf("delete %s: %w", cli.FullName(id), err)
				}
				d := deleter{backend: backend, out: a.Out, cascade: cascade, visiting: map[key.Key]bool{}}
				if hasVersion {
					d.guard = stored
				}
				return d.delete(ctx, stored)
			})
		},
	}
	where.flags(cmd, cli.DefaultTenancy)
	cmd.Flags().BoolVar(&cascade, "cascade", false, "also delete the resources it owns")
	cmd.Flags().StringVar(&version, "version", "", "delete only this version")
	return cmd
}
