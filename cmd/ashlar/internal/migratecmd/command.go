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

func Command(a *cli.App) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move a store's data to another database",
		Long: `Move a store's data to another database, whichever the two are: everything but the versions, which are the target's own.

Without --live the data is copied once and compared; nobody should write to the source meanwhile. With --live programs go on
writing to the source: the data is copied, then the changes are followed, until you type "cutover" and Enter, or until the lag is
proven to be below --cutover-when-lag-below. At the cutover the source is closed for writing (programs get an error that names the
target), the rest is brought over, and both sides are compared. Then the target is the store.

Stopped at any moment, by Ctrl-C or by a failure, the same command goes on where it was: the target remembers. A cutover that fails
opens the source again; one that is stopped leaves it closed, and says how to go on. The target has to be empty, unless --merge,
--overwrite or --mirror says what becomes of what it holds; --merge and --overwrite go with --live only where the source's watches
can prove that they have shown everything.`,
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
			ctx, cancel, err := a.Context(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			return f.open(ctx, func(from, to storage.Backend) error {
				if f.dryRun {
					return dryRun(ctx, a, from, to, f)
				}
				return move(ctx, a, from, to, o, f)
			})
		},
	}
	f.storePair.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.live, "live", false, "follow the source's changes until the cutover")
	flags.DurationVar(&f.lag, "cutover-when-lag-below", 0, "with --live: cut over as soon as the target is less than this behind")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and do nothing")
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

// awaitCutover waits for the operator's word. It ends with the input, or with the process.
func awaitCutover(a *cli.App, cutover chan<- struct{}) {
	for lines := bufio.NewScanner(a.In); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "cutover" {
			cutover <- struct{}{}
			return
		}
	}
}

// dryRun compares, and says what a migration would do about it.
func dryRun(ctx context.Context, a *cli.App, from, to storage.Backend, f migrateFlags) error {
	r, err := migrate.Verify(ctx, from, to, nil)
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
