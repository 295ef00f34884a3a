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

func fsckCommand(a *cli.App) *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:   "fsck",
		Short: "Find damaged resources, with --delete delete them",
		Long: `Find damaged resources: those whose stored bytes cannot be decoded, or are another resource. Each of them makes lists and watches fail that
cover it. With --delete they are deleted at the version that was found; restore them from a backup afterwards. Without it the command
fails if there are any.`,
		Example: `  ashlar fsck
  ashlar fsck --delete`,
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, backend storage.Backend) error {
				return (&checker{a: a, backend: backend, remove: remove, damagedKeys: map[key.Key]bool{}}).check(ctx)
			})
		},
	}
	cmd.Flags().BoolVar(&remove, "delete", false, "delete the damaged resources")
	return cmd
}

// checker finds damaged resources.
type checker struct {
	a       *cli.App
	backend storage.Backend
	remove  bool

	damagedKeys map[key.Key]bool // damaged resources
	remaining   int              // damaged resources that were not deleted
	healthy     int
}

// check lists the store and reports the damaged resources.
func (c *checker) check(ctx context.Context) error {
	pager, ok := storage.As[storage.Pager](c.backend)
	if !ok {
		return errors.New("the store cannot list in pages")
	}
	all := storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	anywhere := &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
	var found []*storage.DamagedError
	opts := storage.ListOptions{Consistency: storage.StrongConsistency, SkipDamaged: func(d *storage.DamagedError) bool {
		found = append(found, d)
		return true
	}}
	for {
		page, err := pager.ListPage(ctx, all, anywhere, "", opts)
		if err != nil {
			return err
		}
		for _, d := range found {
			if err := c.report(ctx, d); err != nil {
				return err
			}
		}
		found = nil
		c.healthy += len(page.Resources)
		if opts.Continue = page.Continue; opts.Continue == "" {
			return c.end()
		}
	}
}

// report prints a damaged resource, and deletes it on request. A list may find a resource repeatedly.
func (c *checker) report(ctx context.Context, d *storage.DamagedError) error {
	k := key.Of(d.ID)
	if c.damagedKeys[k] {
		return nil
	}
	c.damagedKeys[k] = true
	state := "damaged"
	switch {
	case !c.remove:
		c.remaining++
	case d.Version == "":
		state = "not deleted, because its version is lost"
		c.remaining++
	default:
		if err := c.delete(ctx, d); err != nil {
			return fmt.Errorf("delete %s: %w", cli.FullName(d.ID), err)
		}
		state = "deleted"
	}
	_, err := fmt.Fprintf(c.a.Out, "%s in %s/%s, version %s, %s: %v\n", cli.FullName(d.ID), cli.Printable(d.ID.GetTenancy().GetPartition()),
		cli.Printable(d.ID.GetTenancy().GetNamespace()), cli.Printable(d.Version), state, d.Err)
	return err
}

// delete deletes a damaged resource at the version that was found. The error of a list lacks the uid, which the error of a read has.
func (c *checker) delete(ctx context.Context, found *storage.DamagedError) error {
	_, err := c.backend.Read(ctx, storage.StrongConsistency, found.ID)
	var damaged *storage.DamagedError
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case errors.As(err, &damaged) && damaged.Version == found.Version:
		return c.backend.DeleteCAS(ctx, damaged.ID, damaged.Version)
	case err == nil, damaged != nil:
		return storage.ErrCASFailure // it was overwritten in the meantime
	}
	return err
}

// end prints the result.
func (c *checker) end() error {
	if c.remaining > 0 {
		return fmt.Errorf("the store has %d damaged resources: delete them by ashlar fsck --delete, or overwrite them", c.remaining)
	}
	_, err := fmt.Fprintf(c.a.Out, "checked %d resources\n", c.healthy)
	return err
}
