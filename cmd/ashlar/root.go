package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/client"
)

// app is one run of the command: what it talks to, and the flags that all commands have.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string

	store   string
	server  client.Options
	timeout time.Duration
}

// run does what args say and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // of a nil slice cobra makes those of the process
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err != nil {
		// A context that was cancelled says so in many words; the user knows.
		if coded := (*codedError)(nil); ctx.Err() != nil && (!errors.As(err, &coded) || !coded.after) {
			err = failedf("interrupted")
		}
		fmt.Fprintf(a.err, "ashlar: %s\n", oneLine(err))
	}
	return exitCode(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "ashlar",
		Short: "Look into a store of resources, and change it",
		Long: `Look into a store of resources, and change it: in memory, SQLite, PostgreSQL, etcd or DynamoDB.

The store is a URL, given by --store or ASHLAR_STORE. Without either it is a SQLite file in the user's data folder. Or --server names
a server that serves a store (ashlar serve), for the commands that read and write resources.

TYPE is group/Kind, such as apps/Deployment or core/Service; where several types are wanted, group/* or *.

Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 not found, 4 conflict with somebody else's change.`,
		Example: `  ashlar apply -f manifests/
  ashlar list '*'
  ashlar --store sqlite:///var/lib/app/store.db watch apps/Deployment -o json
  ashlar owned apps/Deployment storefront --recursive`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return usagef("unknown command %q, did you mean %s?", args[0], strings.Join(near, " or "))
			}
			return usagef("unknown command %q, see ashlar --help", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w, see %s --help", err, cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.store, "store", "", "URL of the store (default $ASHLAR_STORE, else a SQLite file in the data folder)")
	flags.DurationVar(&a.timeout, "timeout", 0, "give up after this time; watch ends well after it (default: none)")
	a.serverFlags(root)
	root.AddCommand(
		alsoThrough(a.applyCommand()), alsoThrough(a.getCommand()), alsoThrough(a.listCommand()), alsoThrough(a.watchCommand()), alsoThrough(a.topCommand()),
		alsoThrough(a.deleteCommand()), alsoThrough(a.ownedCommand()), alsoThrough(a.typesCommand()), alsoThrough(a.exportCommand()),
		alsoThrough(a.historyCommand()), alsoThrough(a.diffCommand()), alsoThrough(a.revisionsCommand()), a.compactCommand(),
		a.schemaCommand(), a.migrateCommand(), a.importCommand(), a.conformanceCommand(), a.lockCommand(), a.serveCommand(),
		a.versionCommand(),
	)
	return root
}

// context returns the context of a command: that of the run, with the time that the user gives it.
func (a *app) context(cmd *cobra.Command) (context.Context, context.CancelFunc, error) {
	switch {
	case a.timeout < 0:
		return nil, nil, usagef("--timeout is to be more than nothing")
	case a.timeout == 0:
		ctx, cancel := context.WithCancel(cmd.Context())
		return ctx, cancel, nil
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), a.timeout, failedf("gave up after %v", a.timeout))
	return ctx, cancel, nil
}

// args demands the positional arguments that usage lists.
func args(usage ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) == len(usage) {
			return nil
		}
		wanted := "no arguments"
		if len(usage) > 0 {
			wanted = strings.Join(usage, " and ")
		}
		return usagef("%s takes %s, found %d arguments, see %s --help", cmd.Name(), wanted, len(given), cmd.CommandPath())
	}
}
