package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

func (a *app) listCommand() *cobra.Command {
	var f filter
	var out output
	cmd := &cobra.Command{
		Use:   "list TYPE",
		Short: "Show the resources of a type, or of all",
		Long: `Show the resources of a type, or of all, in all namespaces unless -n names one. TYPE is group/Kind, group/* or *.

With -o json there is one resource on a line, as protojson. A payload that cannot be shown so is given by its bytes, as
{"@type":…,"@value":…} with base64 in it, and apply reads it back.`,
		Example: `  ashlar list apps/Deployment -n shop
  ashlar list '*' -o json
  ashlar list core/Pod --prefix storefront- --limit 10 -o name`,
		Args:              args("TYPE"),
		ValidArgsFunction: a.completeTypes,
		RunE: func(cmd *cobra.Command, args []string) error {
			typ, err := parseType(args[0], true)
			if err = errors.Join(err, out.check(), f.check()); err != nil {
				return err
			}
			ctx, cancel, err := a.context(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			return a.with(ctx, func(backend storage.Backend) error {
				p := newPrinter(out.format, a.out)
				err := each(ctx, backend, typ, f, func(res *resourcepb.Resource) error { return p.resource(res, 0) })
				if err != nil {
					return fmt.Errorf("list %s: %w", args[0], err)
				}
				return p.flush()
			})
		},
	}
	f.flags(cmd, "resources")
	out.flags(cmd)
	return cmd
}

// errEnough ends each early.
var errEnough = errors.New("enough")

// each calls do for the resources that match, in order: page by page where the backend has pages.
func each(ctx context.Context, backend storage.Backend, typ storage.UnversionedType, f filter,
	do func(*resourcepb.Resource) error,
) error {
	left := f.limit
	deliver := func(resources []*resourcepb.Resource) error {
		for _, res := range resources {
			if err := do(res); err != nil {
				return err
			}
			if left--; left == 0 {
				return errEnough
			}
		}
		return nil
	}
	err := pages(ctx, backend, typ, f, deliver)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func pages(ctx context.Context, backend storage.Backend, typ storage.UnversionedType, f filter,
	deliver func([]*resourcepb.Resource) error,
) error {
	pager, ok := storage.As[storage.Pager](backend)
	if !ok {
		resources, err := backend.List(ctx, storage.StrongConsistency, typ, f.proto(), f.prefix)
		if err != nil {
			return err
		}
		return deliver(resources)
	}
	opts := storage.ListOptions{Consistency: storage.StrongConsistency, Limit: f.limit}
	for {
		page, err := pager.ListPage(ctx, typ, f.proto(), f.prefix, opts)
		if err != nil {
			return err
		}
		if err := deliver(page.Resources); err != nil {
			return err
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return nil
		}
	}
}
