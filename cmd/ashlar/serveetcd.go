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

func serveEtcdCommand(a *cli.App) *cobra.Command {
	c := serve.Config{AnyType: true} // the keys of etcd are of one type, which needs no description
	var logFormat, logLevel string
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Serve a store by etcd's API",
		Long: `Serve a store by etcd's API, for kube-apiserver, etcdctl and other clients of etcd, until interrupted. The store must number its changes:
every store except DynamoDB does. Several servers can serve one store.

Metrics, /health, /version and etcd's JSON API (/v3/) are at the same port. --admin adds an address for metrics (/metrics) and probes
(/healthz, /readyz) that requires no certificate. SIGHUP reloads the certificates. SIGTERM and SIGINT end the server: active calls may
finish, then watches end so that clients reconnect elsewhere. A second signal ends the server at once.

Without TLS the server listens only on addresses of this machine, unless --insecure is set. Callers are identified only by certificates.`,
		Example: `  ashlar serve etcd --store sqlite:kube.db
  ashlar serve etcd --store postgres://kube@db/kube --listen :2379 --tls-cert server.pem --tls-key server-key.pem --client-ca clients.pem`,
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
			return serve.RunEtcd(cmd.Context(), c)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Listen, "listen", "127.0.0.1:2379", "address of the server")
	flags.StringVar(&c.Admin, "admin", "", "address of metrics and probes, \"\" for none")
	flags.StringVar(&c.Cert, "tls-cert", "", "file of the server's certificate")
	flags.StringVar(&c.Key, "tls-key", "", "file of the private key of the certificate")
	flags.StringVar(&c.ClientCA, "client-ca", "", "file of the CA certificates for client certificates")
	flags.BoolVar(&c.Insecure, "insecure", false, "listen on addresses that other machines reach without TLS")
	flags.DurationVar(&c.Drain, "drain", 10*time.Second, "how long calls may go on when the server is to end")
	flags.DurationVar(&c.ReadyTimeout, "ready-timeout", 2*time.Second, "how long a probe waits for the store")
	flags.StringVar(&logFormat, "log-format", "text", "text or json")
	flags.StringVar(&logLevel, "log-level", "info", "debug, which has every call, info, warn or error")
	return cmd
}
