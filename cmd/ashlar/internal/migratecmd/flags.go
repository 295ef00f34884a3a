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

// storePair are the two stores of a migration.
type storePair struct{ from, to string }

func (f *storePair) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.from, "from", "", "URL of the store that is moved")
	cmd.Flags().StringVar(&f.to, "to", "", "URL of the store that it is moved to")
}

// open opens both stores, calls do, and closes them.
func (f *storePair) open(ctx context.Context, do func(from, to storage.Backend) error) (err error) {
	if f.from == "" || f.to == "" {
		return cli.Usagef("name both stores: --from URL --to URL")
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

// A migration that has ended early says what state the source is in, and which commands lead on. They show stores by the names
// that migrate.Name gives them, because a URL may hold a password.

// commandLine is a commandLine line about both stores.
func (f *storePair) commandLine(sub string, flags ...string) string {
	words := append([]string{"ashlar", "migrate"}, strings.Fields(sub)...)
	words = append(words, "--from", shellQuote(migrate.Name(f.from)), "--to", shellQuote(migrate.Name(f.to)))
	return strings.Join(append(words, flags...), " ")
}

// abortError is the error of giving a migration up, with the way on: once begun, it can be done again.
func (f *storePair) abortError(err error) error {
	if errors.Is(err, storage.ErrInvalid) || errors.Is(err, migrate.ErrBusy) || errors.Is(err, migrate.ErrUnsupported) {
		return fmt.Errorf("abort: %w", err)
	}
	return fmt.Errorf("abort: %w; to do it again: %s; to open the source whatever the target says: %s", err, f.commandLine("abort"), unfenceCommand(f.from))
}

// migrateFlags are the flags of migrate.
type migrateFlags struct {
	storePair
	live, dryRun, merge, overwrite, mirror, json bool
	lag, timeout                                 time.Duration
	rate                                         float64
	parallel                                     int
}

// addTargetFlags are the flags about how the target is changed.
func (f *migrateFlags) addTargetFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.merge, "merge", false, "into a target that is not empty; what differs there is an error")
	flags.BoolVar(&f.overwrite, "overwrite", false, "into a target that is not empty; what differs there is replaced")
	flags.BoolVar(&f.mirror, "mirror", false, "make the target equal to the source: replace what differs, delete what the source lacks")
	flags.Float64Var(&f.rate, "rate", 0, "change at most so many resources a second (default: no limit)")
	flags.IntVar(&f.parallel, "parallel", 32, "so many writers to the target")
	flags.DurationVar(&f.timeout, "patience", time.Minute, "give up when a database has not answered, or had no room, for so long")
	flags.BoolVar(&f.json, "json", false, "tell about the progress in JSON, a line each")
}

func (f *migrateFlags) options() (*migrate.Options, error) {
	o := &migrate.Options{
		From: migrate.Name(f.from), To: migrate.Name(f.to),
		Live: f.live, CutoverLag: f.lag, Rate: f.rate, Parallel: f.parallel, Patience: f.timeout, Count: true,
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
		return nil, cli.Usagef("--merge, --overwrite and --mirror exclude each other")
	case f.lag < 0 || f.lag > 0 && !f.live:
		return nil, cli.Usagef("--cutover-when-lag-below is to be more than nothing, and goes with --live")
	case f.rate < 0 || f.parallel < 1 || f.timeout <= 0:
		return nil, cli.Usagef("--rate, --parallel and --patience are to be more than nothing")
	}
	return o, nil
}

// resumeCommand is the command line that was given.
func (f *migrateFlags) resumeCommand() string {
	var flags []string
	for _, flag := range []struct {
		given bool
		name  string
	}{{f.live, "--live"}, {f.merge, "--merge"}, {f.overwrite, "--overwrite"}, {f.mirror, "--mirror"}} {
		if flag.given {
			flags = append(flags, flag.name)
		}
	}
	if f.lag > 0 {
		flags = append(flags, "--cutover-when-lag-below", f.lag.String())
	}
	return f.commandLine("", flags...)
}

// nextStep says how a migration that has ended early can be gone on with.
func (f *migrateFlags) nextStep(r *migrate.Result) string {
	source := "the source is open for writing"
	abort := "give it up"
	if r.Closed {
		source, abort = "the source is closed for writing until then", "open the source again"
	}
	switch r.Next {
	case migrate.Again:
		return fmt.Sprintf("nothing is lost: the same command goes on from here (phase %q), and %s. To go on: %s. To %s: %s", r.Phase, source,
			f.resumeCommand(), abort, f.commandLine("abort"))
	case migrate.GiveUp:
		return fmt.Sprintf("nothing is lost, but the same command would fail again. To %s: %s", abort, f.commandLine("abort"))
	case migrate.Leave:
		return fmt.Sprintf("another process goes on with it, or has given it up. To see: ashlar migrate status --store %s", shellQuote(migrate.Name(f.to)))
	}
	return ""
}

// withNextStep is the error of a migration that has withNextStep early, with the way on.
func (f *migrateFlags) withNextStep(ctx context.Context, show *reporter, r *migrate.Result, err error) error {
	text := f.nextStep(r)
	switch {
	case text == "":
		return err
	case ctx.Err() != nil:
		show.note(fmt.Sprintf("stopped in phase %q; %s", r.Phase, text))
		return err
	}
	return fmt.Errorf("%w; %s", err, text)
}

// unfenceCommand is the command line that opens a store.
func unfenceCommand(url string) string {
	return "ashlar migrate unfence --store " + shellQuote(migrate.Name(url))
}

// shellQuote quotes a word for a shell, where it needs to be.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./:=@%+,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(cli.Printable(word), "'", `'\''`) + "'"
}
