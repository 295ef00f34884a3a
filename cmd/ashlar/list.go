package main

import (
	"context"
	"errors"
	"fmt"
	"io"

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
		Long: `Show the resources of one type or of all types, in the namespace default unless -n names another; -A shows those of all namespaces.
TYPE is group/Kind, group/* or *.

With --at the command shows the resources as they were at a revision: ashlar revisions shows the available revisions.

With --watch the command continues after the table with a line for every change, until it is interrupted or reaches --limit or --timeout,
which all end it with exit code 0. With -o json, yaml and name the output is that of ashlar watch.

With -o json each resource is one line of protojson. A payload that protojson cannot show is printed as bytes,
{"@type":…,"@value":…} with base64, which apply can read.`,
		Example: `  ashlar list apps/Deployment -n shop
  ashlar list '*' -A -o json
  ashlar list core/Pod --prefix storefront- --limit 10 -o name
  ashlar list '*' -A --at 1200
  ashlar list apps/Deployment --watch`,
		Args:              cli.ExactArgs("TYPE"),
		ValidArgsFunction: completeTypes(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			typ, err := parseType(args[0], true)
			if err = errors.Join(err, out.check(), f.check(cmd)); err != nil {
				return err
			}
			if cmd.Flags().Changed("at") && at < 1 {
				return cli.Usagef("a revision must be 1 or more, found %d", at)
			}
			if watch {
				if cmd.Flags().Changed("at") {
					return cli.Usagef("--at and --watch are mutually exclusive: an old revision does not change")
				}
				w := watcher{app: a, filter: f, out: out, list: out.format == "table"}
				return w.run(cmd, args[0])
			}
			isEmpty := true
			show := func(each func(do func(*resourcepb.Resource) error) error) error {
				p := newPrinter(out.format, a.Out)
				err := each(func(res *resourcepb.Resource) error {
					isEmpty = false
					return p.resource(res, 0)
				})
				if err != nil {
					return fmt.Errorf("list %s: %w", args[0], err)
				}
				return p.flush()
			}
			if cmd.Flags().Changed("at") {
				return onHistory(a, cmd, f.forType(typ), func(ctx context.Context, h historySource) error {
					return show(func(do func(*resourcepb.Resource) error) error {
						return newRecordReader(h, f.forType(typ), at).each(ctx, f.limit, do)
					})
				})
			}
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, backend storage.Backend) error {
				err := show(func(do func(*resourcepb.Resource) error) error { return eachResource(ctx, backend, typ, f, do) })
				if err != nil || !isEmpty || out.format != "table" {
					return err
				}
				return reportEmpty(ctx, a.Err, backend, typ, f)
			})
		},
	}
	f.flags(cmd, "resources")
	out.flags(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "continue with every change")
	cmd.Flags().Int64Var(&at, "at", 0, "show the resources at this revision (default: the newest)")
	return cmd
}

// elsewhereLimit bounds the number of resources that an empty list counts outside its filter.
const elsewhereLimit = 1000

// reportEmpty writes that a list found nothing, and how many resources of the type are outside its filter. The caller may not have the
// permission to list those, so a failed count is left out.
func reportEmpty(ctx context.Context, w io.Writer, backend storage.Backend, typ storage.UnversionedType, f filter) error {
	text := "no resources found"
	all := wholeStore()
	all.limit = elsewhereLimit
	if f.tenancy != all.tenancy || f.prefix != "" {
		elsewhere := 0
		err := eachResource(ctx, backend, typ, all, func(*resourcepb.Resource) error {
			elsewhere++
			return nil
		})
		text += f.text()
		switch {
		case err != nil:
		case elsewhere == elsewhereLimit:
			text += fmt.Sprintf("; there are %d or more elsewhere (see -A and -p)", elsewhere)
		case elsewhere > 0:
			text += fmt.Sprintf("; there are %d elsewhere (see -A and -p)", elsewhere)
		}
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
