package migratecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/migrate"
)

// storePair holds the URLs of the two stores of a migration.
type storePair struct {
	from, to string
	closeNew bool // whether a target that is created is closed for other writers from the beginning
}

func (f *storePair) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.from, "from", "", "URL of the source store")
	cmd.Flags().StringVar(&f.to, "to", "", "URL of the target store")
}

// open opens both stores, calls do, and closes them. The source must exist. policy applies to the target.
func (f *storePair) open(a *cli.App, cmd *cobra.Command, policy cli.Policy, do func(ctx context.Context, from, to storage.Backend) error) (err error) {
	ctx, cancel, err := a.Context(cmd)
	if err != nil {
		return err
	}
	defer cancel()
	if f.from == "" || f.to == "" {
		return cli.Usagef("name both stores: --from URL --to URL")
	}
	closing := func(b storage.Backend, what string) {
		if e := b.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("close the %s: %w", what, e))
		}
	}
	from, err := a.OpenURL(ctx, f.from, cli.Existing)
	if err != nil {
		return fmt.Errorf("open the source: %w", err)
	}
	defer func() { closing(from, "source") }()
	targetCtx := ctx
	if f.closeNew {
		targetCtx = migrate.TargetContext(ctx, migrate.Name(f.from))
	}
	to, err := a.OpenURL(targetCtx, f.to, policy)
	if err != nil {
		return fmt.Errorf("open the target: %w", err)
	}
	defer func() { closing(to, "target") }()
	return do(ctx, from, to)
}

// When a migration ends early, the error reports the state of the source and the commands to continue with. They show stores by
// migrate.Name, because a URL may contain a password.

// commandLine returns a command line for both stores.
func (f *storePair) commandLine(sub string, flags ...string) string {
	words := append([]string{"ashlar", "migrate"}, strings.Fields(sub)...)
	words = append(words, "--from", shellQuote(migrate.Name(f.from)), "--to", shellQuote(migrate.Name(f.to)))
	return strings.Join(append(words, flags...), " ")
}

// abortError returns the error of a failed abort, with the command to repeat it. An abort can be repeated once it has begun.
func (f *storePair) abortError(err error) error {
	if errors.Is(err, storage.ErrInvalid) || errors.Is(err, migrate.ErrBusy) || errors.Is(err, migrate.ErrUnsupported) {
		return fmt.Errorf("abort: %w", err)
	}
	return fmt.Errorf("abort: %w; to repeat it: %s; to open the source whatever the state of the target: %s", err, f.commandLine("abort"), unfenceCommand(f.from))
}

// migrateFlags are the flags of migrate.
type migrateFlags struct {
	storePair
	allowEmpty, live, dryRun, merge, overwrite, mirror, json bool
	lag, timeout                                             time.Duration
	rate                                                     float64
	parallel                                                 int
}

// addTargetFlags adds the flags that control the changes to the target.
func (f *migrateFlags) addTargetFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.merge, "merge", false, "allow a target that is not empty; a different resource there is an error")
	flags.BoolVar(&f.overwrite, "overwrite", false, "allow a target that is not empty; a different resource there is replaced")
	flags.BoolVar(&f.mirror, "mirror", false, "make the target equal to the source: replace different resources, delete those missing in the source")
	flags.Float64Var(&f.rate, "rate", 0, "maximum number of resources changed per second (default: no limit)")
	flags.IntVar(&f.parallel, "parallel", 32, "number of concurrent writers to the target")
	flags.DurationVar(&f.timeout, "patience", time.Minute, "fail if a database has not answered, or had no space, for this time")
	flags.BoolVar(&f.json, "json", false, "print the progress as lines of JSON")
}

func (f *migrateFlags) options() (*migrate.Options, error) {
	o := &migrate.Options{
		From: migrate.Name(f.from), To: migrate.Name(f.to),
		Live: f.live, CutoverLag: f.lag, Rate: f.rate, Parallel: f.parallel, Timeout: f.timeout, Count: true,
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
		return nil, cli.Usagef("--merge, --overwrite and --mirror are mutually exclusive")
	case f.lag < 0 || f.lag > 0 && !f.live:
		return nil, cli.Usagef("--cutover-when-lag-below must be more than 0, and requires --live")
	case f.rate < 0 || f.parallel < 1 || f.timeout <= 0:
		return nil, cli.Usagef("--rate, --parallel and --patience must be more than 0")
	}
	return o, nil
}

// resumeCommand returns the command line of this migration.
func (f *migrateFlags) resumeCommand() string {
	var flags []string
	for _, flag := range []struct {
		given bool
		name  string
	}{{f.allowEmpty, "--allow-empty"}, {f.live, "--live"}, {f.merge, "--merge"}, {f.overwrite, "--overwrite"}, {f.mirror, "--mirror"}} {
		if flag.given {
			flags = append(flags, flag.name)
		}
	}
	if f.lag > 0 {
		flags = append(flags, "--cutover-when-lag-below", f.lag.String())
	}
	return f.commandLine("", flags...)
}

// nextStep returns how to continue a migration that ended early.
func (f *migrateFlags) nextStep(r *migrate.Result) string {
	source := "the source is open for writing"
	abort := "abort it"
	if r.SourceClosed {
		source, abort = "the source is closed for writing until then", "open the source again"
	}
	switch r.Next {
	case migrate.Retry:
		return fmt.Sprintf("nothing is lost: the same command continues from here (phase %q), and %s. To continue: %s. To %s: %s", r.Phase, source,
			f.resumeCommand(), abort, f.commandLine("abort"))
	case migrate.AbortFirst:
		return fmt.Sprintf("nothing is lost, but the same command would fail again. To %s: %s", abort, f.commandLine("abort"))
	case migrate.Stop:
		return fmt.Sprintf("another process continues it, or has aborted it. To check: ashlar migrate status --store %s", shellQuote(migrate.Name(f.to)))
	}
	return ""
}

// withNextStep adds the next step to the error of a migration that ended early.
func (f *migrateFlags) withNextStep(ctx context.Context, show *reporter, r *migrate.Result, err error) error {
	text := f.nextStep(r)
	switch {
	case text == "":
		return chooseContents(err)
	case ctx.Err() != nil:
		show.note(fmt.Sprintf("stopped in phase %q; %s", r.Phase, text))
		return err
	}
	return fmt.Errorf("%w; %s", err, text)
}

// chooseContents adds the options to the error of a target that is not empty.
func chooseContents(err error) error {
	if errors.Is(err, migrate.ErrNotEmpty) {
		return fmt.Errorf("%w; choose --merge, --overwrite or --mirror", err)
	}
	return err
}

// unfenceCommand returns the command line that opens a store for writing.
func unfenceCommand(url string) string {
	return "ashlar migrate unfence --store " + shellQuote(migrate.Name(url))
}

// shellQuote quotes a word for a shell, if necessary.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./:=@%+,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(cli.Printable(word), "'", `'\''`) + "'"
}
