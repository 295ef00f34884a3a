package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

func diffCommand(a *cli.App) *cobra.Command {
	var f filter
	var out output
	var from, to int64
	cmd := &cobra.Command{
		Use:   "diff --from REVISION [--to REVISION] TYPE",
		Short: "Show the differences between two revisions",
		Long: `Show the resources that were created, changed and deleted between two revisions, and their differences. --to defaults to the newest
revision. A resource that was changed and changed back is shown as changed, without differences. A resource that was created and
deleted in between is not shown: see history. "replaced" means deleted and created again.

TYPE is group/Kind, group/* or *. The namespace is default unless -n names another; -A selects all namespaces. ashlar revisions shows the available revisions. The version and the generation change with every
write and are not compared. With -o json each resource is one line: {"change":…,"before":…,"now":…}, where before and now contain the
resource and its revision.`,
		Example: `  ashlar diff --from 120 --to 180 '*' -A
  ashlar diff --from 120 apps/Deployment -n shop
  ashlar diff --from 120 '*' -A -o name`,
		Args:              cli.ExactArgs("TYPE"),
		ValidArgsFunction: completeTypes(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			typ, err := parseType(args[0], true)
			if err = errors.Join(err, out.check(), f.check(cmd)); err != nil {
				return err
			}
			switch {
			case !cmd.Flags().Changed("from"):
				return cli.Usagef("diff needs --from REVISION: ashlar revisions shows the available revisions")
			case from < 1 || cmd.Flags().Changed("to") && to < 1:
				return cli.Usagef("a revision must be 1 or more")
			case to != 0 && to < from:
				return cli.Usagef("--to must be --from or more, found %d and %d", to, from)
			}
			matching := f.forType(typ)
			return onHistory(a, cmd, matching, func(ctx context.Context, h historySource) error {
				d := differ{before: newRecordReader(h, matching, from), now: newRecordReader(h, matching, to), limit: f.limit}
				p := newPrinter(out.format, a.Out)
				if err := d.each(ctx, p.delta); err != nil {
					return fmt.Errorf("diff %s: %w", args[0], err)
				}
				return p.flush()
			})
		},
	}
	f.flags(cmd, "resources")
	out.flags(cmd)
	cmd.Flags().Int64Var(&from, "from", 0, "the earlier revision")
	cmd.Flags().Int64Var(&to, "to", 0, "the later revision (default: the newest)")
	return cmd
}

// delta is a resource that differs between two revisions. A nil record means that it did not exist.
type delta struct {
	change      string
	before, now *history.Record
}

func (d *delta) id() *resourcepb.ID {
	if d.now != nil {
		return d.now.Resource.GetId()
	}
	return d.before.Resource.GetId()
}

// differ compares two states of a store side by side.
type differ struct {
	before, now *recordReader
	limit       int
}

// each calls do for each difference, in the order of keys.
func (d *differ) each(ctx context.Context, do func(*delta) error) error {
	was, err := d.before.next(ctx)
	if err != nil {
		return err
	}
	is, err := d.now.next(ctx)
	for remaining := d.limit; err == nil && (was != nil || is != nil); {
		diff := compareFirst(was, is)
		if diff.change != "" {
			if err := do(&diff); err != nil {
				return err
			}
			if remaining--; remaining == 0 {
				return nil
			}
		}
		if diff.before != nil {
			if was, err = d.before.next(ctx); err != nil {
				return err
			}
		}
		if diff.now != nil {
			is, err = d.now.next(ctx)
		}
	}
	return err
}

// compareFirst compares the record with the smaller key, or both if the keys are equal. If there is no difference, change is "".
func compareFirst(was, is *history.Record) delta {
	order := 0
	switch {
	case was == nil:
		order = 1
	case is == nil:
		order = -1
	default:
		order = key.Of(was.Resource.GetId()).Compare(key.Of(is.Resource.GetId()))
	}
	switch {
	case order < 0:
		return delta{change: "deleted", before: was}
	case order > 0:
		return delta{change: "created", now: is}
	case was.Created != is.Created:
		return delta{change: "replaced", before: was, now: is}
	case was.Modified != is.Modified:
		return delta{change: "changed", before: was, now: is}
	}
	return delta{before: was, now: is}
}

// delta prints a difference, followed by the fields that differ.
func (p *printer) delta(d *delta) error {
	switch p.format {
	case "json", "yaml":
		return p.object(member{"change", d.change}, member{"before", d.before}, member{"now", d.now})
	case "name":
		return p.line([]byte(d.change + " " + cli.FullName(d.id())))
	}
	head := fmt.Sprintf("%-8s %s", d.change, cli.Describe(d.id()))
	switch {
	case d.before == nil:
		head += fmt.Sprintf(" (revision %d)", d.now.Modified)
	case d.now == nil:
		head += fmt.Sprintf(" (was revision %d)", d.before.Modified)
	default:
		head += fmt.Sprintf(" (revision %d, was %d)", d.now.Modified, d.before.Modified)
	}
	if err := p.line([]byte(head)); err != nil {
		return err
	}
	return p.fields(d.before, d.now)
}
