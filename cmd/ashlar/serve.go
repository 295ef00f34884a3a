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
		Long: `Serve the resources of a store by gRPC and, as JSON, by HTTP under /api, until it is interrupted. docs/service.md tells about all of it.

The types that are served come from a directory of descriptor sets, or all are with --any-type. Callers are known by tokens, whose
hashes are in a YAML file with what each may do. Metrics (/metrics) and probes (/healthz, /readyz) are at the HTTP address, or at
one of their own. Traces go where the OTEL_EXPORTER_OTLP_… variables say. Logs go to standard error, and never hold a token.

SIGHUP has the token file and the certificates read again. SIGTERM and SIGINT end the server: calls under way may end, then watches
are told to go on elsewhere; a second signal ends it at once.

Without TLS it listens on addresses of this machine only, unless --insecure is given.`,
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
	flags.StringVar(&c.Tokens, "tokens", "", "file that says which token may do what (default: everybody may do everything)")
	flags.StringVar(&c.Cert, "tls-cert", "", "file of the server's certificate")
	flags.StringVar(&c.Key, "tls-key", "", "file of the private key of the certificate")
	flags.StringVar(&c.ClientCA, "client-ca", "", "file of the certificates that have to have signed those of clients")
	flags.BoolVar(&c.Insecure, "insecure", false, "listen on addresses that other machines reach without TLS")
	flags.DurationVar(&c.Drain, "drain", 10*time.Second, "how long calls may go on when the server is to end")
	flags.DurationVar(&c.ReadyTimeout, "ready-timeout", 2*time.Second, "how long a probe waits for the store")
	flags.StringVar(&logFormat, "log-format", "text", "text or json")
	flags.StringVar(&logLevel, "log-level", "info", "debug, which has every call, info, warn or error")
	cmd.AddCommand(serveEtcdCommand(a))
	return cmd
}
