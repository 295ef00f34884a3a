package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

func (a *app) deleteCommand() *cobra.Command {
	var where tenancy
	var version string
	var cascade bool
	cmd := &cobra.Command{
		Use:   "delete TYPE NAME",
		Short: "Delete a resource, with --cascade also what it owns",
		Long: `Delete a resource. What it owns stays, unless --cascade asks for that to be deleted too, and what that owns, and so on:
the owned before their owners, so that a cascade that was cut off can be repeated.`,
		Example: `  ashlar delete core/ConfigMap settings -n shop
  ashlar delete apps/Deployment storefront --cascade`,
		Args:              args("TYPE", "NAME"),
		ValidArgsFunction: a.completeNames(&where),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := where.id(args[0], args[1])
			if err != nil {
				return err
			}
			guarded := cmd.Flags().Changed("version")
			ctx, cancel, err := a.context(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			return a.with(ctx, func(backend storage.Backend) error {
				stored, err := read(ctx, backend, id)
				if err == nil && guarded && stored.GetVersion() != version {
					err = storage.ErrCASFailure
				}
				if err != nil {
					return fmt.Errorf("delete %s: %w", fullName(id), err)
				}
				d := deleter{backend: backend, out: a.out, cascade: cascade, seen: map[key.Key]bool{}}
				if guarded {
					d.guard = stored
				}
				return d.delete(ctx, stored)
			})
		},
	}
	where.flags(cmd, defaultTenancy)
	cmd.Flags().BoolVar(&cascade, "cascade", false, "delete what it owns, too")
	cmd.Flags().StringVar(&version, "version", "", "only if this version is stored")
	return cmd
}

type deleter struct {
	backend storage.Backend
	out     io.Writer
	cascade bool
	guard   *resourcepb.Resource // must not have changed, unless it is nil
	seen    map[key.Key]bool     // owners may own each other in a circle
}

// delete deletes a resource that was read, and what it owns if that is wanted.
func (d *deleter) delete(ctx context.Context, res *resourcepb.Resource) error {
	id := res.GetId()
	d.seen[key.Of(id)] = true
	if d.cascade {
		if _, err := d.owned(ctx, id); err != nil {
			return err
		}
	}
	if err := d.one(ctx, res); err != nil {
		return fmt.Errorf("delete %s: %w", fullName(id), err)
	}
	for d.cascade {
		// What came to be owned meanwhile is still found, by the uid of the owner.
		if found, err := d.owned(ctx, id); err != nil || !found {
			return err
		}
	}
	return nil
}

// owned deletes what id owns and says whether there was anything.
func (d *deleter) owned(ctx context.Context, id *resourcepb.ID) (bool, error) {
	children, err := d.backend.OwnerReferences(ctx, id)
	if err != nil {
		return false, fmt.Errorf("what %s owns: %w", fullName(id), err)
	}
	found := false
	for _, child := range children {
		if d.seen[key.Of(child)] {
			continue
		}
		res, err := read(ctx, d.backend, child)
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil {
			return found, fmt.Errorf("get %s: %w", fullName(child), err)
		}
		found = true
		if err := d.delete(ctx, res); err != nil {
			return found, err
		}
	}
	return found, nil
}

// one deletes one resource, again and again while others change it.
func (d *deleter) one(ctx context.Context, res *resourcepb.Resource) error {
	for {
		err := d.backend.DeleteCAS(ctx, res.GetId(), res.GetVersion())
		if err == nil {
			_, err = fmt.Fprintf(d.out, "%s deleted\n", described(res.GetId()))
			return err
		}
		if !errors.Is(err, storage.ErrCASFailure) || d.guard == res {
			return err
		}
		res, err = read(ctx, d.backend, res.GetId())
		if errors.Is(err, storage.ErrNotFound) {
			return nil // somebody else deleted it
		}
		if err != nil {
			return err
		}
	}
}
