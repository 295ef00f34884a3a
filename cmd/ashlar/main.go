// Command ashlar inspects and changes a store: any of the databases that Ashlar has an adapter for.
//
//	ashlar apply -f manifests/
//	ashlar list '*' -A
//	ashlar watch apps/Deployment -o json
//	ashlar owned apps/Deployment storefront --recursive
//
// The store is named by --store or ASHLAR_STORE; without either it is a SQLite file in the user's data directory. See ashlar --help, and
// package manifest for the input of apply.
//
// The exit code is 0 on success, 1 after a failure, 2 for a wrong command line, 3 if a resource does not exist, and 4 if a concurrent
// change caused a conflict.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/conformancecmd"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/migratecmd"
	"github.com/ashlar-dev/storage/conformance/faults"
	_ "github.com/ashlar-dev/storage/dynamodb"       // dynamodb:
	_ "github.com/ashlar-dev/storage/dynamodb/relay" // dynamodb: with watch=relay
	_ "github.com/ashlar-dev/storage/etcd"           // etcd:, etcds:
	_ "github.com/ashlar-dev/storage/inmem"          // mem:
	_ "github.com/ashlar-dev/storage/postgres"       // postgres:, postgresql:
	_ "github.com/ashlar-dev/storage/sqlite"         // sqlite:
)

func main() {
	if faults.ServeProcess() { // a process of ashlar conformance --faults
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal, the next one has its default effect, so a command that cannot end cleanly can still be ended.
	context.AfterFunc(ctx, stop)
	a := &cli.App{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}
	os.Exit(run(ctx, a, os.Args[1:]))
}

// run executes args and returns the exit code.
func run(ctx context.Context, a *cli.App, args []string) int {
	root := newRoot(a)
	root.SetArgs(append([]string{}, args...)) // cobra replaces a nil slice with the arguments of the process
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	err := root.ExecuteContext(ctx)
	if err != nil {
		// The errors of a cancelled context are verbose, and the user knows the reason.
		if coded := (*cli.CodedError)(nil); ctx.Err() != nil && (!errors.As(err, &coded) || !coded.AfterInterrupt) {
			err = cli.Failedf("interrupted")
		}
		fmt.Fprintf(a.Err, "ashlar: %s\n", cli.OneLine(err))
	}
	return cli.ExitCode(err)
}

func newRoot(a *cli.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "ashlar",
		Short: "Inspect and change a store of resources",
		Long: `Inspect and change a store of resources: in memory, SQLite, PostgreSQL, etcd or DynamoDB.

The store is a URL, set by --store or ASHLAR_STORE. Without either it is a SQLite file in the user's data directory. Instead of a store,
--server names a server of a store (ashlar serve), for the commands that read and write resources.

TYPE is group/Kind, such as apps/Deployment or core/Service; commands for several types also accept group/* and *.

Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 not found, 4 conflict with a concurrent change.`,
		Example: `  ashlar apply -f manifests/
  ashlar list '*' -A
  ashlar --store sqlite:///var/lib/app/store.db watch apps/Deployment -o json
  ashlar owned apps/Deployment storefront --recursive`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return cli.Usagef("unknown command %q, did you mean %s?", args[0], strings.Join(near, " or "))
			}
			return cli.Usagef("unknown command %q, see ashlar --help", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cli.Usagef("%w, see %s --help", err, cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.Store, "store", "", "URL of the store (default $ASHLAR_STORE, else a SQLite file in the data directory)")
	flags.DurationVar(&a.Timeout, "timeout", 0, "fail after this time; watch ends successfully after it (default: none)")
	serverFlags(a, root)
	root.AddCommand(
		withServer(applyCommand(a)), withServer(getCommand(a)), withServer(listCommand(a)), withServer(watchCommand(a)), withServer(topCommand(a)),
		withServer(deleteCommand(a)), withServer(ownedCommand(a)), withServer(typesCommand(a)), withServer(controllersCommand(a)), withServer(migratecmd.ExportCommand(a)),
		withServer(historyCommand(a)), withServer(diffCommand(a)), withServer(revisionsCommand(a)), compactCommand(a),
		fsckCommand(a), schemaCommand(a), storeCommand(a), migratecmd.Command(a), migratecmd.ImportCommand(a), conformancecmd.Command(a), lockCommand(a), expireCommand(a), serveCommand(a),
		versionCommand(a), manCommand(),
	)
	return root
}

// serverFlags adds the flags that name a server and configure the connection.
func serverFlags(a *cli.App, root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&a.Server.Address, "server", "", "host:port or unix:PATH of a server of resources (ashlar serve), instead of a store")
	flags.StringVar(&a.Server.Token, "token", "", "token that identifies you to the server (default $ASHLAR_TOKEN)")
	flags.StringVar(&a.TokenFile, "token-file", "", "file with the token, instead of --token")
	flags.StringVar(&a.Server.CA, "ca", "", "file of the CA certificates for the server's certificate (default: the system's)")
	flags.StringVar(&a.Server.Cert, "cert", "", "file of the client certificate, if the server requires one")
	flags.StringVar(&a.Server.Key, "key", "", "file of the private key of the client certificate")
	flags.BoolVar(&a.Server.Insecure, "insecure", false, "connect to a server on another machine without TLS")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case a.Server.Address == "":
			return nil
		case cmd.Annotations[serverAnnotation] == "":
			return cli.Usagef("%s does not support --server: it needs the store itself, by --store", cmd.Name())
		case a.Store != "":
			return cli.Usagef("--server and --store are mutually exclusive")
		case a.Server.Token != "" && a.TokenFile != "":
			return cli.Usagef("--token and --token-file are mutually exclusive")
		}
		return nil
	}
}

// serverAnnotation marks the commands that support --server.
const serverAnnotation = "ashlar.dev/through-server"

// withServer marks a command as supporting --server.
func withServer(cmd *cobra.Command) *cobra.Command {
	cmd.Annotations = map[string]string{serverAnnotation: "true"}
	return cmd
}
