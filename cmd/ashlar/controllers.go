package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/resourcepb"
)

func controllersCommand(a *cli.App) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "controllers",
		Short: "Show the controllers that processes run on the store",
		Long: `Show the controllers that processes run on the store: who holds the lease of each, and its queue.

Programs that use package controller, with leases, publish their state every few seconds. A process that has died is shown until its lease ends.`,
		Example: `  ashlar controllers
  ashlar controllers -o json`,
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, backend storage.Backend) error {
				all, err := readControllers(ctx, backend)
				if err != nil {
					return fmt.Errorf("list controllers: %w", err)
				}
				p := newPrinter(out.format, a.Out)
				return errors.Join(p.controllers(all, time.Now()), p.flush())
			})
		},
	}
	out.flags(cmd)
	return cmd
}

// readControllers returns the status of each lease of a controller, without a process if it is free, and of each process that runs a controller
// without a lease.
func readControllers(ctx context.Context, backend storage.Backend) ([]controller.Status, error) {
	records, err := backend.List(ctx, storage.EventualConsistency, storage.UnversionedTypeFrom(controller.ProcessType), &resourcepb.Tenancy{Partition: cli.DefaultTenancy, Namespace: cli.DefaultTenancy}, "")
	if err != nil {
		return nil, err
	}
	newest := map[string]controller.Status{} // by controller and lease, or by process for a controller without a lease
	for _, res := range records {
		found, err := controller.ProcessStatus(res)
		if err != nil {
			return nil, fmt.Errorf("the record %s: %w", res.GetId().GetName(), err)
		}
		for _, s := range found {
			at := fmt.Sprintf("%s\x00%d", s.Controller, s.Shard)
			if s.Runs && s.Epoch == 0 {
				at += "\x00" + s.Process
			}
			if !s.Runs {
				s.Process = ""
			}
			// The record of a process that has died is outdated: its successor has a higher epoch.
			if known, exists := newest[at]; !exists || s.Runs && s.Epoch >= known.Epoch {
				newest[at] = s
			}
		}
	}
	all := slices.Collect(maps.Values(newest))
	slices.SortFunc(all, func(a, b controller.Status) int {
		return cmp.Or(cmp.Compare(a.Controller, b.Controller), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Process, b.Process))
	})
	return all, nil
}

func (p *printer) controllers(all []controller.Status, now time.Time) error {
	if p.format == "table" && len(all) > 0 {
		if err := p.row("CONTROLLER", "TYPE", "PLACEMENT", "SHARD", "HOLDER", "EPOCH", "TENURE", "QUEUE", "OLDEST", "ERRORS", "LAST SUCCESS"); err != nil {
			return err
		}
	}
	for _, s := range all {
		var err error
		switch p.format {
		case "table":
			err = p.row(s.Controller, s.Type, s.Placement, strconv.Itoa(s.Shard), cmp.Or(s.Process, "-"), strconv.FormatInt(s.Epoch, 10), age(s.Since, now),
				strconv.Itoa(s.Ready), s.Oldest.Round(time.Millisecond).String(), strconv.FormatInt(s.Errors, 10), age(s.LastSuccess, now))
		case "name":
			err = p.line([]byte(s.Controller))
		default:
			err = p.value("a controller", s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// age returns the time since a moment, "-" for none.
func age(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return now.Sub(since).Round(time.Second).String()
}
