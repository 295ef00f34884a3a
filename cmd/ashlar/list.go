package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/resourcepb"
)

func listCommand(a *cli.App) *cobra.Command {
	var f filter
	var out output
	var at int64
	var watch bool
	cmd := &cobra.Command{
		Use:   "list TYPE",
		Short: "Show the resources of a type, or of all",
		Long: `Show the resources of a type, or of all, in all namespaces unless -n names one. TYPE is group/Kind, group/* or *.

With --at it shows the resources as they were at a revision: ashlar revisions shows which there are.

With --watch it goes on: every change is a line below the table, until it is interrupted or --limit or --timeout is reached, which all
end it with exit code 0. With -o json, yaml and name it is what ashlar watch shows.

With -o json there is one resource on a line, as protojson. A payload that cannot be shown so is given by its bytes, as
{"@type":…,"@value":…} with base64 in it, and apply reads it back.`,
		Example: `  ashlar list apps/Deployment -n shop
  ashlar list '*' -o json
  ashlar list core/Pod --prefix storefront- --limit 10 -o name
  ashlar list '*' --at 1200
  ashlar list apps/Deployment --watch`,
		Args:              cli.ExactArgs("TYPE"),
		ValidArgsFunction: completeTypes(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			typ, err := parseType(args[0], true)
			if err = errors.Join(err, out.check(), f.check()); err != nil {
				return err
			}
			if cmd.Flags().Changed("at") && at < 1 {
				return cli.Usagef("a revision is a number from 1 on, found %d", at)
			}
			if watch {
				if cmd.Flags().Changed("at") {
					return cli.Usagef("--at and --watch exclude each other: the past does not change")
				}
				w := watcher{app: a, filter: f, out: out, list: out.format == "table"}
				return w.run(cmd, args[0])
			}
			ctx, cancel, err := a.Context(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			show := func(each func(do func(*resourcepb.Resource) error) error) error {
				p := newPrinter(out.format, a.Out)
				if err := each(func(res *resourcepb.Resource) error { return p.resource(res, 0) }); err != nil {
					return fmt.Errorf("list %s: %w", args[0], err)
				}
				return p.flush()
			}
			if cmd.Flags().Changed("at") {
				return onHistory(ctx, a, f.forType(typ), func(h historySource) error {
					return show(func(do func(*resourcepb.Resource) error) error {
						return newRecordReader(h, f.forType(typ), at).each(ctx, f.limit, do)
					})
				})
			}
			return a.With(ctx, func(backend storage.Backend) error {
				return show(func(do func(*resourcepb.Resource) error) error { return eachResource(ctx, backend, typ, f, do) })
			})
		},
	}
	f.flags(cmd, "resources")
	out.flags(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on with every change")
	cmd.Flags().Int64Var(&at, "at", 0, "show what there was at this revision (default: what there is)")
	return cmd
}
