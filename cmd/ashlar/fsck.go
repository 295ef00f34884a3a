package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

func fsckCommand(a *cli.App) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "fsck",
		Short: "Find damaged resources, with --quarantine move them to a file",
		Long: `Find damaged resources: those whose stored bytes cannot be decoded, or are another resource. Each of them makes lists and watches fail that
cover it. Without --quarantine the command fails if there are any.

With --quarantine each damaged resource is appended to a file, with the bytes that were stored, as a line of JSON. Then it is deleted from the
store, if it still has the version that was found. Open watches of its type end, so that their programs list again. The resources that it
owned stay. Restore it from a backup afterwards.`,
		Example: `  ashlar fsck
  ashlar fsck --quarantine damaged.jsonl`,
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, backend storage.Backend) error {
				q, err := openQuarantine(file)
				if err != nil {
					return err
				}
				defer q.close()
				return (&checker{a: a, backend: backend, quarantine: q, damagedKeys: map[key.Key]bool{}}).check(ctx)
			})
		},
	}
	cmd.Flags().StringVar(&file, "quarantine", "", "append the damaged resources to this file and delete them")
	return cmd
}

// checker finds damaged resources.
type checker struct {
	a          *cli.App
	backend    storage.Backend
	quarantine *quarantine // nil: report only

	damagedKeys map[key.Key]bool // damaged resources
	remaining   int              // damaged resources that are still stored
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
	ctx = driver.WithMovedReads(ctx)
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

// report prints a damaged resource, and moves it to the quarantine on request. A list may find a resource repeatedly.
func (c *checker) report(ctx context.Context, d *storage.DamagedError) error {
	k := key.Of(d.ID)
	if c.damagedKeys[k] {
		return nil
	}
	c.damagedKeys[k] = true
	state, failure := "damaged", error(nil)
	if c.quarantine != nil {
		if state, failure = c.move(ctx, d); failure != nil {
			state = "not moved"
		}
	}
	if state != stateMoved && state != stateGone {
		c.remaining++
	}
	_, err := fmt.Fprintf(c.a.Out, "%s in %s/%s, version %s, %s: %v\n", cli.FullName(d.ID), cli.Printable(d.ID.GetTenancy().GetPartition()),
		cli.Printable(d.ID.GetTenancy().GetNamespace()), cli.Printable(d.Version), state, d.Err)
	return errors.Join(failure, err)
}

// The states of a damaged resource that is not stored any more.
const (
	stateMoved = "moved to the quarantine"
	stateGone  = "not stored any more"
)

// move writes a damaged resource to the quarantine and then deletes it at the version that was found. It returns the state of the resource. The
// error of a list lacks the uid, which the error of a read has.
func (c *checker) move(ctx context.Context, found *storage.DamagedError) (state string, err error) {
	damaged, err := c.read(ctx, found.ID)
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", cli.FullName(found.ID), err)
	case damaged == nil:
		return stateGone, nil
	case damaged.Version == "":
		return "not moved, because its version is lost", nil
	}
	if err := c.quarantine.add(damaged); err != nil {
		return "", err
	}
	if err := c.backend.DeleteCAS(ctx, damaged.ID, damaged.Version); errors.Is(err, storage.ErrCASFailure) {
		return "not moved, because it was written meanwhile", nil
	} else if err != nil {
		return "", fmt.Errorf("delete %s: %w", cli.FullName(found.ID), err)
	}
	// A deletion with another uid than the stored one, which may be lost, does nothing.
	if remaining, err := c.read(ctx, found.ID); err != nil {
		return "", fmt.Errorf("read %s: %w", cli.FullName(found.ID), err)
	} else if remaining != nil && remaining.Version == damaged.Version {
		return "not moved, because its uid is lost", nil
	}
	return stateMoved, nil
}

// read returns the damage of a resource, nil if it is not stored or is not damaged.
func (c *checker) read(ctx context.Context, id *resourcepb.ID) (*storage.DamagedError, error) {
	_, err := c.backend.Read(ctx, storage.StrongConsistency, id)
	var damaged *storage.DamagedError
	var mismatch storage.GroupVersionMismatchError
	switch {
	case errors.As(err, &damaged):
		return damaged, nil
	case err == nil, errors.Is(err, storage.ErrNotFound), errors.As(err, &mismatch):
		return nil, nil
	}
	return nil, err
}

// end prints the result.
func (c *checker) end() error {
	if c.remaining > 0 {
		return fmt.Errorf("the store has %d damaged resources: move them to a file by ashlar fsck --quarantine FILE, or overwrite them", c.remaining)
	}
	_, err := fmt.Fprintf(c.a.Out, "checked %d resources\n", c.healthy)
	return err
}
