package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

func getCommand(a *cli.App) *cobra.Command {
	var where tenancy
	var out output
	cmd := &cobra.Command{
		Use:   "get TYPE NAME",
		Short: "Show one resource",
		Example: `  ashlar get apps/Deployment storefront
  ashlar get core/ConfigMap settings -n shop -o yaml`,
		Args:              cli.ExactArgs("TYPE", "NAME"),
		ValidArgsFunction: completeNames(a, &where),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			id, err := where.id(args[0], args[1])
			if err != nil {
				return err
			}
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, backend storage.Backend) error {
				res, err := read(ctx, backend, id)
				if err != nil {
					return fmt.Errorf("get %s: %w", cli.FullName(id), err)
				}
				p := newPrinter(out.format, a.Out)
				if err := p.single(res); err != nil {
					return err
				}
				return p.flush()
			})
		},
	}
	where.flags(cmd, cli.DefaultTenancy)
	out.flags(cmd)
	return cmd
}
