package migratecmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/resourcepb"
)

func migrateVerifyCommand(a *cli.App) *cobra.Command {
	var f storePair
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare two stores",
		Long: `Compare two stores, everything except the versions, and print the differences: missing is only in the source, extra only in the
target. A "reference" is a resource that the list of an owner's resources omits or shows wrongly, on one side. The exit code is 1 if there
are any. While programs write, their changes may appear as differences.`,
		Example:           "  ashlar migrate verify --from sqlite:///var/lib/app/store.db --to postgres://db.example/app",
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.open(a, cmd, cli.Existing, func(ctx context.Context, from, to storage.Backend) error { return verify(ctx, a, from, to, asJSON) })
		},
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the differences as lines of JSON")
	return cmd
}

func verify(ctx context.Context, a *cli.App, from, to storage.Backend, asJSON bool) error {
	show := func(d migrate.Difference) error {
		res := d.Source
		if res == nil {
			res = d.Target
		}
		if !asJSON {
			_, err := fmt.Fprintf(a.Out, "%-9s %s\n", d.Kind, cli.Describe(res.GetId()))
			return err
		}
		return jsonLine(a.Out, difference(d.Kind, res.GetId()))
	}
	r, err := migrate.Verify(ctx, from, to, &migrate.VerifyOptions{OnDifference: show})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if asJSON {
		err = jsonLine(a.Out, map[string]any{
			"equal": r.Equal(), "source": r.Source, "target": r.Target, "missing": r.Missing, "extra": r.Extra, "different": r.Different, "references": r.References, "columns": r.Columns,
			"bytes": r.Bytes, "sourceDigest": r.SourceDigest, "targetDigest": r.TargetDigest,
		})
	} else if r.Equal() {
		_, err = fmt.Fprintln(a.Out, r)
	}
	if err == nil && !r.Equal() {
		err = cli.Failedf("verify: %v", r)
	}
	return err
}

func difference(kind migrate.Kind, id *resourcepb.ID) map[string]any {
	return map[string]any{
		"difference": kind, "group": id.GetType().GetGroup(), "kind": id.GetType().GetKind(), "partition": id.GetTenancy().GetPartition(),
		"namespace": id.GetTenancy().GetNamespace(), "name": id.GetName(), "uid": id.GetUid(),
	}
}

func migrateAbortCommand(a *cli.App) *cobra.Command {
	var f storePair
	var force bool
	cmd := &cobra.Command{
		Use:   "abort",
		Short: "Abort a migration that is not complete",
		Long: `Abort a migration that is not complete. The source accepts writes again if the cutover had begun, and the target no longer takes part
in a migration. Copied data stays in the target. A process that works on the migration stops by itself. If in doubt, repeat the command.

If one of the stores was restored from a backup, they no longer name each other, and abort refuses. With --force it releases the target
from an unfinished migration of any source, and opens the source whatever it is closed for. If the source has moved to a store that is in
use, the two then diverge: see "ashlar migrate status --store" of the source first.`,
		Example:           "  ashlar migrate abort --from sqlite:///var/lib/app/store.db --to postgres://db.example/app",
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.open(a, cmd, cli.Existing, func(ctx context.Context, from, to storage.Backend) error {
				abort := migrate.Abort
				if force {
					abort = migrate.ForceAbort
					if err := f.warn(ctx, a, from); err != nil {
						return err
					}
				}
				if err := abort(ctx, from, to); err != nil {
					return f.abortError(err)
				}
				_, err := fmt.Fprintln(a.Out, "aborted: the source accepts writes")
				return err
			})
		},
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "abort although the stores do not name each other, because one was restored from a backup")
	return cmd
}

// warn prints a warning before a forced abort opens a closed source.
func (f *storePair) warn(ctx context.Context, a *cli.App, from storage.Backend) error {
	fence, err := migrate.ReadFence(ctx, from)
	if err == nil && fence.Closed {
		_, err = fmt.Fprintf(a.Out, "warning: opening %s, which was closed because it has moved to %s; if that store is in use, the two diverge\n",
			migrate.Name(f.from), cli.Printable(fence.Target))
	}
	return err
}

func migrateUnfenceCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "unfence",
		Short: "Open a store for writing that a migration has closed",
		Long: `Open a store for writing that a migration has closed. Do this only if the target is not in use, or to migrate back into this store: two
stores in use diverge.`,
		Example:           "  ashlar migrate unfence --store sqlite:///var/lib/app/store.db",
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, b storage.Backend) error {
				if err := migrate.Unfence(ctx, b); err != nil {
					return fmt.Errorf("unfence: %w", err)
				}
				_, err := fmt.Fprintln(a.Out, "the store accepts writes")
				return err
			})
		},
	}
}
