package main

import (
	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/serve"
)

func serveEtcdCommand(a *cli.App) *cobra.Command {
	f := serveFlags{config: serve.Config{AnyType: true}} // all keys of etcd have one type, which needs no description
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
			return f.run(cmd, a, server{serve.ValidateEtcd, serve.RunEtcd})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config.Listen, "listen", "127.0.0.1:2379", "address of the server")
	flags.StringVar(&f.config.Admin, "admin", "", "address of metrics and probes, \"\" for none")
	f.add(cmd)
	return cmd
}
