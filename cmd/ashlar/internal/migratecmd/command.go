// Package migratecmd contains the commands that move stores: migrate, export and import.
package migratecmd

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/migrate"
)

// Command returns the migrate command.
func Command(a *cli.App) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move a store's data to another database",
		Long: `Move a store's data to another database of any kind: everything except the versions, which the target assigns.

Without --live the data is copied once and compared; no program may write to the source meanwhile. With --live programs continue to
write to the source: the data is copied and the changes are followed until you type "cutover" and Enter, or until the lag is proven to
be below --cutover-when-lag-below. The cutover closes the source for writing (programs get an error that names the target), copies the
remaining changes, and compares both sides. Then the target is the store.

Until the migration is complete, the target is closed for all other writers. Closing an existing DynamoDB table takes 16 minutes; a table
that the command creates is closed from the beginning.

If the command is stopped, by Ctrl-C or by a failure, the same command resumes: the target stores its state. A cutover that fails opens
the source again; a cutover that is stopped leaves it closed and prints how to continue. The target must be empty, unless --merge,
--overwrite or --mirror decides about its contents, and the source must not be empty, unless --allow-empty is set. --merge and --overwrite work with --live only if the watches of the source can prove
that they are complete.`,
		Example: `  ashlar migrate --from sqlite:///var/lib/app/store.db --to postgres://db.example/app --dry-run
  ashlar migrate --from sqlite:///var/lib/app/store.db --to postgres://db.example/app --live
  ashlar migrate verify --from sqlite:///var/lib/app/store.db --to postgres://db.example/app`,
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			f.closeNew = !f.dryRun
			return f.open(a, cmd, cli.Create, func(ctx context.Context, from, to storage.Backend) error {
				if !f.allowEmpty {
					if err := refuseEmptySource(ctx, from, to); err != nil {
						return fmt.Errorf("migrate: %w", err)
					}
				}
				if f.dryRun {
					return dryRun(ctx, a, from, to, f)
				}
				return move(ctx, a, from, to, o, f)
			})
		},
	}
	f.storePair.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.live, "live", false, "follow the changes of the source until the cutover")
	flags.DurationVar(&f.lag, "cutover-when-lag-below", 0, "with --live: cut over as soon as the lag of the target is below this")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the planned changes and write no resource; a missing target store is created")
	addAllowEmpty(cmd, &f.allowEmpty)
	f.addTargetFlags(cmd)
	cmd.AddCommand(migrateVerifyCommand(a), migrateStatusCommand(a), migrateAbortCommand(a), migrateUnfenceCommand(a))
	return cmd
}

// move runs a migration.
func move(ctx context.Context, a *cli.App, from, to storage.Backend, o *migrate.Options, f migrateFlags) error {
	show := newReporter(a, f.json)
	o.Progress = show.progress
	if f.live && f.lag == 0 {
		cutover := make(chan struct{}, 1)
		o.Cutover = cutover
		go awaitCutover(a, cutover)
		show.note(`type "cutover" and Enter to close the source and complete the migration`)
	}
	r, err := migrate.Run(ctx, from, to, o)
	show.end()
	if err != nil {
		return f.withNextStep(ctx, show, r, err)
	}
	return show.result(r, o)
}

// awaitCutover waits until the operator types "cutover". It ends with the input, or with the process.
func awaitCutover(a *cli.App, cutover chan<- struct{}) {
	for lines := bufio.NewScanner(a.In); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "cutover" {
			cutover <- struct{}{}
			return
		}
	}
}

// dryRun compares the stores and prints the changes that a migration would make.
func dryRun(ctx context.Context, a *cli.App, from, to storage.Backend, f migrateFlags) error {
	r, err := migrate.Verify(ctx, from, to, &migrate.VerifyOptions{SkipReferences: true})
	if err != nil {
		return err
	}
	lines := []string{fmt.Sprintf("source: %d resources, %d bytes, the largest %d", r.Source, r.Bytes, r.Largest),
		fmt.Sprintf("target: %d resources; %d are missing, %d differ, %d are not in the source", r.Target, r.Missing, r.Different, r.Extra)}
	switch {
	case r.Target == 0:
		lines = append(lines, "would copy everything")
	case f.mirror:
		lines = append(lines, fmt.Sprintf("would create %d, replace %d, delete %d", r.Missing, r.Different, r.Extra))
	case f.overwrite:
		lines = append(lines, fmt.Sprintf("would create %d, replace %d", r.Missing, r.Different))
	case f.merge && r.Different == 0:
		lines = append(lines, fmt.Sprintf("would create %d", r.Missing))
	case f.merge:
		lines = append(lines, "would refuse, because some differ")
	default:
		lines = append(lines, "would refuse, because the target is not empty; see --merge, --overwrite and --mirror")
	}
	_, err = fmt.Fprintln(a.Out, strings.Join(lines, "\n"))
	return err
}
