package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/top"
)

func topCommand(a *cli.App) *cobra.Command {
	t := topper{app: a}
	cmd := &cobra.Command{
		Use:   "top [TYPE]",
		Short: "Show how many resources there are and how fast they change, live",
		Long: `Show live how many resources of each type exist, how large they are, how often they are written and deleted, how far the numbers may be
behind the store, and the newest changes. TYPE is group/Kind, group/* or *, the default. Unlike list and watch, top shows all namespaces
and partitions unless -n or -p names one.

On a terminal the display updates in place; q quits, ? lists the keys. Otherwise some lines are printed at every interval. The command
ends with exit code 0 on q, Ctrl-C, SIGTERM, --limit or --timeout.

"Behind by at most" is the time that the watch last took to prove that it had returned every earlier write. Not all stores support it.`,
		Example: `  ashlar top
  ashlar top apps/* -n shop
  ashlar top --server 127.0.0.1:8502
  ashlar top --interval 10s --limit 6`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) > 1 {
				return cli.Usagef("top takes at most one TYPE, found %d arguments, see %s --help", len(given), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: completeTypes(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{storage.Wildcard}
			}
			return t.run(cmd, args[0])
		},
	}
	t.filter.tenancy.flags(cmd, storage.Wildcard)
	t.filter.limits(cmd, "updates of the display")
	cmd.Flags().DurationVar(&t.interval, "interval", time.Second, "time between two updates")
	return cmd
}

// topper is one run of the command.
type topper struct {
	app      *cli.App
	filter   filter
	interval time.Duration
}

func (t *topper) run(cmd *cobra.Command, arg string) error {
	typ, err := parseType(arg, true)
	if err = errors.Join(err, t.filter.check(cmd)); err != nil {
		return err
	}
	if t.interval < 100*time.Millisecond {
		return cli.Usagef("--interval must be 100ms or more, found %v", t.interval)
	}
	ctx, cancel, err := t.app.Context(cmd)
	if err != nil {
		return err
	}
	defer cancel()
	err = t.app.With(ctx, cli.Existing, func(b storage.Backend) error { return t.show(ctx, b, typ) })
	if ctx.Err() != nil && isContextError(err) {
		return nil
	}
	return err
}

// show shows the events of a watch until the user ends it.
func (t *topper) show(ctx context.Context, b storage.Backend, typ storage.UnversionedType) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tally := top.NewTally(time.Now())
	followed := make(chan error, 1)
	go func() {
		followed <- top.Follow(ctx, b, typ, t.filter.proto(), t.filter.prefix, tally)
		cancel() // nothing more to show
	}()
	var err error
	if t.terminal() {
		_, err = tea.NewProgram(top.NewScreen(t.storeName(), tally, t.interval),
			tea.WithContext(ctx), tea.WithInput(t.app.In), tea.WithOutput(t.app.Out), tea.WithoutSignalHandler()).Run()
		if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
			err = nil
		}
	} else {
		err = top.Print(ctx, t.app.Out, tally, t.interval, t.filter.limit)
	}
	cancel()
	if failed := <-followed; failed != nil {
		return fmt.Errorf("top: %w", failed)
	}
	return err
}

// terminal reports whether input and output are both a terminal.
func (t *topper) terminal() bool {
	for _, end := range []any{t.app.In, t.app.Out} {
		f, ok := end.(*os.File)
		if !ok || !term.IsTerminal(int(f.Fd())) {
			return false
		}
	}
	return true
}

// storeName returns the name of the store or server, without secrets.
func (t *topper) storeName() string {
	if t.app.Server.Address != "" {
		return t.app.Server.Address
	}
	raw, err := t.app.StoreURL()
	if err != nil {
		return ""
	}
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery = nil, ""
	return u.String()
}
