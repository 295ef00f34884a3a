package main

import (
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
		Short: "Delete a resource, with --cascade also what it owns",
		Long: `Delete a resource. What it owns stays, unless --cascade asks for that to be deleted too, and what that owns, and so on:
the owned before their owners, so that a cascade that was cut off can be repeated. What others give to another owner meanwhile
stays. A resource that is damaged, so that nothing can read it, is deleted like any other.`,
		Example: `  ashlar delete core/ConfigMap settings -n shop
  ashlar delete apps/Deployment storefront --cascade`,
		Args:              cli.ExactArgs("TYPE", "NAME"),
		ValidArgsFunction: completeNames(a, &where),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := where.id(args[0], args[1])
			if err != nil {
				return err
			}
			guarded := cmd.Flags().Changed("version")
			ctx, cancel, err := a.Context(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			return a.With(ctx, func(backend storage.Backend) error {
				stored, err := read(ctx, backend, id)
				var damaged *storage.DamagedError
				if errors.As(err, &damaged) && damaged.Version != "" {
					stored, err = &resourcepb.Resource{Id: damaged.ID, Version: damaged.Version}, nil
				}
				if err == nil && guarded && stored.GetVersion() != version {
					err = storage.ErrCASFailure
				}
				if err != nil {
					return fmt.Errorf("delete %s: %w", cli.FullName(id), err)
				}
				d := deleter{backend: backend, out: a.Out, cascade: cascade, visiting: map[key.Key]bool{}}
				if guarded {
					d.guard = stored
				}
				return d.delete(ctx, stored)
			})
		},
	}
	where.flags(cmd, cli.DefaultTenancy)
	cmd.Flags().BoolVar(&cascade, "cascade", false, "delete what it owns, too")
	cmd.Flags().StringVar(&version, "version", "", "only if this version is stored")
	return cmd
}
