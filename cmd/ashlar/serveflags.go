package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/serve"
)

// serveFlags are the flags of both servers.
type serveFlags struct {
	config              serve.Config
	maxBuffered         int // MiB
	logFormat, logLevel string
}

// add adds the shared flags to a command.
func (f *serveFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.config.Cert, "tls-cert", "", "file of the server's certificate")
	flags.StringVar(&f.config.Key, "tls-key", "", "file of the private key of the certificate")
	flags.StringVar(&f.config.ClientCA, "client-ca", "", "file of the CA certificates for client certificates")
	flags.BoolVar(&f.config.Insecure, "insecure", false, "listen on addresses that other machines reach without TLS")
	flags.IntVar(&f.config.MaxConnections, "max-connections", 0, "maximum number of open connections at each address; 0 is a third of the process's open files, at most 10000")
	flags.DurationVar(&f.config.Drain, "drain", 10*time.Second, "maximum time for running calls when the server stops")
	flags.DurationVar(&f.config.DrainDelay, "drain-delay", 0, "how long requests are served after a stop signal, while probes report not ready")
	flags.DurationVar(&f.config.ReadyTimeout, "ready-timeout", 2*time.Second, "how long a probe waits for the store")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug (every call), info, warn or error")
}

// run runs a server until ctx ends.
func (f *serveFlags) run(ctx context.Context, a *cli.App, serveStore func(context.Context, serve.Config) error) (err error) {
	c := f.config
	if c.Logger, err = serve.NewLogger(a.Err, f.logFormat, f.logLevel); err != nil {
		return cli.Usagef("%w", err)
	}
	c.MaxBuffered = int64(f.maxBuffered) << 20
	if err := c.Check(); err != nil {
		return cli.Usagef("%w", err)
	}
	if c.Store, err = a.NewStoreURL(); err != nil {
		return err
	}
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	c.Reload, c.Version = hangUps, cli.BuildVersion()
	return serveStore(ctx, c)
}
