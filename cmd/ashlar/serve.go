package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/serve"
)

func serveCommand(a *cli.App) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the resources of a store by gRPC and HTTP",
		Long: `Serve the resources of a store by gRPC and, as JSON, by HTTP under /api, until interrupted. See docs/service.md.

The types come from a directory of descriptor sets; --any-type serves all types. Callers are identified by tokens: a YAML file contains
the hashes of the tokens and their permissions. Metrics (/metrics) and probes (/healthz, /readyz) are at the HTTP address, or at an
address of their own. Traces are sent as configured by the OTEL_EXPORTER_OTLP_… variables. Logs go to standard error and never contain a
token.

The flags can be in a file (--config). Changes of the token file, the types and the certificates take effect at once, or on SIGHUP. SIGTERM
and SIGINT end the server: active calls may finish, then watches end so that clients reconnect elsewhere. A second signal ends the server at
once.

Without TLS the server listens only on addresses of this machine, unless --insecure is set.`,
		Example: `  ashlar serve --any-type --store sqlite:///var/lib/app/store.db
  ashlar serve --types /etc/ashlar/types --tokens /etc/ashlar/tokens.yaml --tls-cert server.pem --tls-key server-key.pem --listen :8502 --http :8500`,
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return f.run(cmd, a, server{serve.Validate, serve.Run}) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config.Listen, "listen", "127.0.0.1:8502", "address of the gRPC server")
	flags.StringVar(&f.config.HTTP, "http", "127.0.0.1:8500", "address of the HTTP server, \"\" for none")
	flags.StringVar(&f.config.Admin, "admin", "", "address of metrics and probes (default: the address of --http)")
	flags.StringVar(&f.config.Types, "types", "", "directory with the descriptor sets (*.binpb, *.pb) of the types that are served")
	flags.BoolVar(&f.config.AnyType, "any-type", false, "serve every type, in namespaces, with any payload")
	flags.StringVar(&f.config.Tokens, "tokens", "", "file with the permissions of each token (default: all callers may do everything)")
	flags.IntVar(&f.maxBuffered, "max-buffered", 256, "MiB of answers that wait for their clients, a quarter of it for each token")
	flags.DurationVar(&f.config.ConnectionAge, "connection-age", time.Hour, "maximum age of a gRPC connection, whose client then opens another, 0 for no limit")
	flags.Float64Var(&f.config.Rate, "rate", 0, "calls and requests a second of each token, 0 for no limit")
	flags.Float64Var(&f.config.TotalRate, "total-rate", 0, "calls and requests a second of all callers, 0 for no limit")
	flags.StringVar(&f.config.Audit, "audit", "", "file of the audit log, \"-\" for standard output")
	flags.StringSliceVar(&f.config.AuditPolicy, "audit-policy", nil, "TYPE=none, TYPE=metadata or TYPE=payload; the first match counts (default: *=metadata)")
	flags.BoolVar(&f.config.RecordAuthor, "record-author", false, "store the name of the token with each version, for ashlar history")
	flags.BoolVar(&f.config.Expire, "expire", true, "delete resources after their time to live; this watches the whole store")
	flags.DurationVar(&f.config.WriteProbe, "write-probe", time.Minute, "how often a probe also writes to the store, 0 for never")
	f.add(cmd)
	cmd.AddCommand(serveEtcdCommand(a))
	return cmd
}
