package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/serve"
)

// serveFlags are the flags of both servers.
type serveFlags struct {
	config              serve.Config
	maxBuffered         int // MiB
	logFormat, logLevel string
	configFile          string
	check, schema       bool
}

// add adds the shared flags to a command.
func (f *serveFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.config.Cert, "tls-cert", "", "file of the server's certificate")
	flags.StringVar(&f.config.Key, "tls-key", "", "file of the private key of the certificate")
	flags.StringVar(&f.config.ClientCA, "client-ca", "", "file of the CA certificates for client certificates")
	flags.BoolVar(&f.config.Insecure, "insecure", false, "listen on addresses that other machines reach without TLS, or without tokens and client certificates")
	flags.IntVar(&f.config.MaxConnections, "max-connections", 0, "maximum number of open connections at each address; 0 is a third of the process's open files, at most 10000")
	flags.DurationVar(&f.config.Drain, "drain", 10*time.Second, "maximum time for running calls when the server stops")
	flags.DurationVar(&f.config.DrainDelay, "drain-delay", 0, "how long requests are served after a stop signal, while probes report not ready")
	flags.DurationVar(&f.config.ReadyTimeout, "ready-timeout", 2*time.Second, "how long a probe waits for the store")
	flags.StringVar(&f.configFile, "config", "", "YAML file with values for the flags; flags of the command line override it")
	flags.BoolVar(&f.check, "check", false, "check the configuration and its files, and end")
	flags.BoolVar(&f.schema, "config-schema", false, "print the JSON schema of the configuration file, and end")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug (every call), info, warn or error")
}

// configurable returns the flags that the configuration file may set.
func configurable(cmd *cobra.Command) []*pflag.Flag {
	all := []*pflag.Flag{cmd.Flag("store")}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "check" && f.Name != "config-schema" && f.Name != "help" {
			all = append(all, f)
		}
	})
	return all
}

// server is a server that the flags configure.
type server struct {
	validate func(serve.Config) error
	run      func(context.Context, serve.Config) error
}

// run runs a server until the context of cmd ends.
func (f *serveFlags) run(cmd *cobra.Command, a *cli.App, s server) (err error) {
	if f.schema {
		text, err := serve.Schema(configurable(cmd))
		if err == nil {
			_, err = fmt.Fprintf(a.Out, "%s\n", text)
		}
		return err
	}
	if f.configFile != "" {
		if err := serve.ReadFlags(f.configFile, configurable(cmd)); err != nil {
			return cli.Usagef("%w", err)
		}
	}
	c := f.config
	if c.Logger, err = serve.NewLogger(a.Err, f.logFormat, f.logLevel); err != nil {
		return cli.Usagef("%w", err)
	}
	c.Out = a.Out
	c.MaxBuffered = int64(f.maxBuffered) << 20
	if err := c.Check(); err != nil {
		return cli.Usagef("%w", err)
	}
	if f.check {
		if err := s.validate(c); err != nil {
			return err
		}
		_, err := fmt.Fprintln(a.Out, "the configuration is valid")
		return err
	}
	if c.Store, err = a.NewStoreURL(); err != nil {
		return err
	}
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	c.Reload, c.Version = hangUps, cli.BuildVersion()
	return s.run(cmd.Context(), c)
}
