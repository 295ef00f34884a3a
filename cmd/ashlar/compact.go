package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/history"
)

func revisionsCommand(a *cli.App) *cobra.Command {
	var f filter
	var out output
	cmd := &cobra.Command{
		Use:   "revisions [TYPE]",
		Short: "Show the oldest and the newest revision of the store",
		Long: `Show the oldest revision at which the store can be read, and the newest one. A revision is the number of a commit. Changes before the
oldest revision have been deleted.

The revisions are those of the whole store. TYPE, -n and -p matter only with --server: a server answers callers who may list that type there.`,
		Example: `  ashlar revisions
  ashlar revisions -o json
  ashlar revisions apps/Deployment -n shop --server 127.0.0.1:8502`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) > 1 {
				return cli.Usagef("revisions takes at most a TYPE, found %d arguments, see %s --help", len(given), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: completeTypes(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			typ, err := parseType(append(args, storage.Wildcard)[0], true)
			if err = errors.Join(err, out.check()); err != nil {
				return err
			}
			return onHistory(a, cmd, f.forType(typ), func(ctx context.Context, h historySource) error {
				oldest, newest, err := h.Revisions(ctx, f.forType(typ))
				if err != nil {
					return err
				}
				p := newPrinter(out.format, a.Out)
				return errors.Join(p.revisions(oldest, newest), p.flush())
			})
		},
	}
	f.tenancy.flags(cmd, storage.Wildcard)
	out.flags(cmd)
	return cmd
}

func (p *printer) revisions(oldest, newest int64) error {
	switch p.format {
	case "json", "yaml":
		return p.object(member{"oldest", oldest}, member{"newest", newest})
	case "name":
		return p.line(fmt.Appendf(nil, "%d %d", oldest, newest))
	}
	return errors.Join(p.row("OLDEST", "NEWEST"), p.row(strconv.FormatInt(oldest, 10), strconv.FormatInt(newest, 10)))
}

func compactCommand(a *cli.App) *cobra.Command {
	var keep int64
	cmd := &cobra.Command{
		Use:   "compact REVISION | --keep NUMBER",
		Short: "Delete the history before a revision",
		Long: `Delete the history before a revision. The last commit up to it becomes the oldest revision. With --keep NUMBER
the revision is the newest one minus NUMBER. Stored resources do not change. Watches and lists of other clients
that need the deleted history must start again. If the store has already deleted as much, nothing changes.

On etcd this compacts the whole cluster, including all other stores and keys in it.`,
		Example: `  ashlar compact 1200
  ashlar compact --keep 10000`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given)+btoi(cmd.Flags().Changed("keep")) == 1 {
				return nil
			}
			return cli.Usagef("compact takes either a revision or --keep NUMBER: ashlar revisions shows the available revisions")
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			var revision int64
			if len(args) > 0 {
				var err error
				if revision, err = strconv.ParseInt(args[0], 10, 64); err != nil || revision < 1 {
					return cli.Usagef("a revision must be 1 or more, found %q", args[0])
				}
			} else if keep < 0 {
				return cli.Usagef("--keep must be 0 or more, found %d", keep)
			}
			return onHistorian(a, cmd, func(ctx context.Context, h history.Historian) error { return compact(ctx, a, h, revision, keep) })
		},
	}
	cmd.Flags().Int64Var(&keep, "keep", 0, "number of revisions before the newest to keep")
	return cmd
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// compact forgets the history before a revision, or all but the last keep revisions if revision is 0, and prints the result.
func compact(ctx context.Context, a *cli.App, h history.Historian, revision, keep int64) error {
	before, newest, err := h.Revisions(ctx)
	if err != nil {
		return err
	}
	if revision == 0 {
		revision = max(newest-keep, 1)
	}
	if err := h.Compact(ctx, revision); err != nil {
		return err
	}
	oldest, newest, err := h.Revisions(ctx)
	if err != nil {
		return err
	}
	if oldest == before {
		_, err = fmt.Fprintf(a.Out, "nothing to delete: the oldest revision is %d, the newest %d\n", oldest, newest)
	} else {
		_, err = fmt.Fprintf(a.Out, "compacted: the oldest revision is %d, was %d; the newest is %d\n", oldest, before, newest)
	}
	return err
}
