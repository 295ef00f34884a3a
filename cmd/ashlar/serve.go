package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/serve"
)

func serveCommand(a *cli.App) *cobra.Command {
	var c serve.Config
	var logFormat, logLevel string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the resources of a store by gRPC and HTTP",
		Long: `Serve the resources of a store by gRPC and, as JSON, by HTTP under /api, until interrupted. See docs/service.md.

The types come from a directory of descriptor sets; --any-type serves all types. Callers are identified by tokens: a YAML file contains
the hashes of the tokens and their permissions. Metrics (/metrics) and probes (/healthz, /readyz) are at the HTTP address, or at an
address of their own. Traces are sent as configured by the OTEL_EXPORTER_OTLP_… variables. Logs go to standard error and never contain a
token.

SIGHUP reloads the token file and the certificates. SIGTERM and SIGINT end the server: active calls may finish, then watches end so that
clients reconnect elsewhere. A second signal ends the server at once.

Without TLS the server listens only on addresses of this machine, unless --insecure is set.`,
		Example: `  ashlar serve --any-type --store sqlite:///var/lib/app/store.db
  ashlar serve --types /etc/ashlar/types --tokens /etc/ashlar/tokens.yaml --tls-cert server.pem --tls-key server-key.pem --listen :8502 --http :8500`,
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.Logger, err = serve.NewLogger(a.Err, logFormat, logLevel); err != nil {
				return cli.Usagef("%w", err)
			}
			if err := c.Check(); err != nil {
				return cli.Usagef("%w", err)
			}
			if c.Store, err = a.StoreURL(); err != nil {
				return err
			}
			hangUps := make(chan os.Signal, 1)
			signal.Notify(hangUps, syscall.SIGHUP)
			defer signal.Stop(hangUps)
			c.Reload, c.Version = hangUps, cli.BuildVersion()
			return serve.Run(cmd.Context(), c)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Listen, "listen", "127.0.0.1:8502", "address of the gRPC server")
	flags.StringVar(&c.HTTP, "http", "127.0.0.1:8500", "address of the HTTP server, \"\" for none")
	flags.StringVar(&c.Admin, "admin", "", "address of metrics and probes (default: that of --http)")
	flags.StringVar(&c.Types, "types", "", "directory with the descriptor sets (*.binpb, *.pb) of the types that are served")
	flags.BoolVar(&c.AnyType, "any-type", false, "serve every type, in namespaces, with any payload")
	flags.StringVar(&c.Tokens, "tokens", "", "file with the permissions of each token (default: all callers may do everything)")
	flags.StringVar(&c.Cert, "tls-cert", "", "file of the server's certificate")
	flags.StringVar(&c.Key, "tls-key", "", "file of the private key of the certificate")
	flags.StringVar(&c.ClientCA, "client-ca", "", "file of the CA certificates for client certificates")
	flags.BoolVar(&c.Insecure, "insecure", false, "listen on addresses that other machines reach without TLS")
	flags.DurationVar(&c.Drain, "drain", 10*time.Second, "how long calls may go on when the server is to end")
	flags.DurationVar(&c.ReadyTimeout, "ready-timeout", 2*time.Second, "how long a probe waits for the store")
	flags.StringVar(&logFormat, "log-format", "text", "text or json")
	flags.StringVar(&logLevel, "log-level", "info", "debug, which has every call, info, warn or error")
	cmd.AddCommand(serveEtcdCommand(a))
	return cmd
}
