package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/migrate"
)

// fromTo are the two stores of a migration.
type fromTo struct{ from, to string }

func (f *fromTo) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.from, "from", "", "URL of the store that is moved")
	cmd.Flags().StringVar(&f.to, "to", "", "URL of the store that it is moved to")
}

// open opens both stores, calls do, and closes them.
func (f *fromTo) open(ctx context.Context, do func(from, to storage.Backend) error) (err error) {
	if f.from == "" || f.to == "" {
		return usagef("name both stores: --from URL --to URL")
	}
	closing := func(b storage.Backend, what string) {
		if e := b.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("close the %s: %w", what, e))
		}
	}
	from, err := storage.Open(ctx, f.from)
	if err != nil {
		return fmt.Errorf("open the source: %w", err)
	}
	defer func() { closing(from, "source") }()
	to, err := storage.Open(ctx, f.to)
	if err != nil {
		return fmt.Errorf("open the target: %w", err)
	}
	defer func() { closing(to, "target") }()
	return do(from, to)
}

// moving are the flags of migrate.
type moving struct {
	fromTo
	live, dryRun, merge, overwrite, mirror, json bool
	lag, patience                                time.Duration
	rate                                         float64
	parallel                                     int
}

func (a *app) migrateCommand() *cobra.Command {
	var f moving
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
		Args:              args(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			ctx, cancel, err := a.context(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			return f.open(ctx, func(from, to storage.Backend) error {
				if f.dryRun {
					return a.dryRun(ctx, from, to, f)
				}
				return a.move(ctx, from, to, o, f)
			})
		},
	}
	f.fromTo.flags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.live, "live", false, "follow the source's changes until the cutover")
	flags.DurationVar(&f.lag, "cutover-when-lag-below", 0, "with --live: cut over as soon as the target is less than this behind")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and do nothing")
	f.changes(cmd)
	cmd.AddCommand(a.migrateVerifyCommand(), a.migrateStatusCommand(), a.migrateAbortCommand(), a.migrateUnfenceCommand())
	return cmd
}

// changes are the flags about how the target is changed.
func (f *moving) changes(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.merge, "merge", false, "into a target that is not empty; what differs there is an error")
	flags.BoolVar(&f.overwrite, "overwrite", false, "into a target that is not empty; what differs there is replaced")
	flags.BoolVar(&f.mirror, "mirror", false, "make the target equal to the source: replace what differs, delete what the source lacks")
	flags.Float64Var(&f.rate, "rate", 0, "change at most so many resources a second (default: no limit)")
	flags.IntVar(&f.parallel, "parallel", 32, "so many writers to the target")
	flags.DurationVar(&f.patience, "patience", time.Minute, "give up when a database has not answered, or had no room, for so long")
	flags.BoolVar(&f.json, "json", false, "tell about the progress in JSON, a line each")
}

func (f *moving) options() (*migrate.Options, error) {
	o := &migrate.Options{
		From: migrate.Name(f.from), To: migrate.Name(f.to),
		Live: f.live, CutoverLag: f.lag, Rate: f.rate, Parallel: f.parallel, Patience: f.patience, Count: true,
	}
	chosen := 0
	for _, c := range []struct {
		given bool
		into  migrate.Into
	}{{f.merge, migrate.Merge}, {f.overwrite, migrate.Overwrite}, {f.mirror, migrate.Mirror}} {
		if c.given {
			chosen++
			o.Into = c.into
		}
	}
	switch {
	case chosen > 1:
		return nil, usagef("--merge, --overwrite and --mirror exclude each other")
	case f.lag < 0 || f.lag > 0 && !f.live:
		return nil, usagef("--cutover-when-lag-below is to be more than nothing, and goes with --live")
	case f.rate < 0 || f.parallel < 1 || f.patience <= 0:
		return nil, usagef("--rate, --parallel and --patience are to be more than nothing")
	}
	return o, nil
}

// move runs a migration.
func (a *app) move(ctx context.Context, from, to storage.Backend, o *migrate.Options, f moving) error {
	show := a.newProgress(f.json)
	o.Progress = show.progress
	if f.live && f.lag == 0 {
		cutover := make(chan struct{}, 1)
		o.Cutover = cutover
		go a.awaitCutover(cutover)
		show.note(`type "cutover" and Enter to close the source and complete the migration`)
	}
	r, err := migrate.Run(ctx, from, to, o)
	show.end()
	if err != nil {
		return f.ended(ctx, show, r, err)
	}
	return show.result(r, o)
}

// awaitCutover waits for the operator's word. It ends with the input, or with the process.
func (a *app) awaitCutover(cutover chan<- struct{}) {
	for lines := bufio.NewScanner(a.in); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "cutover" {
			cutover <- struct{}{}
			return
		}
	}
}

// dryRun compares, and says what a migration would do about it.
func (a *app) dryRun(ctx context.Context, from, to storage.Backend, f moving) error {
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
	_, err = fmt.Fprintln(a.out, strings.Join(lines, "\n"))
	return err
}
