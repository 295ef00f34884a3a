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

func ownedCommand(a *cli.App) *cobra.Command {
	var where tenancy
	var out output
	var recursive bool
	cmd := &cobra.Command{
		Use:   "owned TYPE NAME",
		Short: "Show the resources that a resource owns",
		Example: `  ashlar owned apps/Deployment storefront
  ashlar owned apps/Deployment storefront --recursive -o name`,
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
				owner, err := read(ctx, backend, id)
				if err != nil {
					return fmt.Errorf("get %s: %w", cli.FullName(id), err)
				}
				p := newPrinter(out.format, a.Out)
				o := ownedLister{backend: backend, recursive: recursive, print: p.resource, visitedKeys: map[key.Key]bool{key.Of(id): true}}
				if err := o.show(ctx, owner.GetId(), 0); err != nil {
					return err
				}
				return p.flush()
			})
		},
	}
	where.flags(cmd, cli.DefaultTenancy)
	out.flags(cmd)
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "also show indirectly owned resources")
	return cmd
}

type ownedLister struct {
	backend     storage.Backend
	recursive   bool
	print       func(res *resourcepb.Resource, depth int) error
	visitedKeys map[key.Key]bool // owners may own each other in a circle
}

func (o *ownedLister) show(ctx context.Context, owner *resourcepb.ID, depth int) error {
	children, err := o.backend.OwnerReferences(ctx, owner)
	if err != nil {
		return fmt.Errorf("list the resources owned by %s: %w", cli.FullName(owner), err)
	}
	for _, child := range children {
		if o.visitedKeys[key.Of(child)] {
			continue
		}
		o.visitedKeys[key.Of(child)] = true
		res, err := read(ctx, o.backend, child)
		if errors.Is(err, storage.ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return fmt.Errorf("get %s: %w", cli.FullName(child), err)
		}
		if err := o.print(res, depth); err != nil {
			return err
		}
		if o.recursive {
			if err := o.show(ctx, child, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
