package serve

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"
)

// Config is what can be set of a server.
type Config struct {
	// Store is the URL of the store.
	Store string
	// Listen is the address of the gRPC server.
	Listen string
	// HTTP is the address of the HTTP server; empty for none.
	HTTP string
	// Admin is the address of metrics and probes; empty if they are served at HTTP.
	Admin string

	// Cert and Key are the files of the server's certificate and private key, in PEM. Both empty: no TLS.
	Cert, Key string
	// ClientCA is the file of the certificates, in PEM, by which those of clients have to be signed. Empty: clients need none.
	ClientCA string
	// Insecure allows addresses that other machines reach without TLS.
	Insecure bool

	// Tokens is the token file. Empty: everybody may do everything.
	Tokens string
	// Types is a directory of descriptor sets; AnyType takes every type. One of them is needed.
	Types   string
	AnyType bool

	// Drain is how long calls may go on when the server is told to stop.
	Drain time.Duration
	// ReadyTimeout is how long a probe waits for the store's answer.
	ReadyTimeout time.Duration

	// Logger is told what happens.
	Logger *slog.Logger
	// Reload has the token file and the certificates read again at each signal; nil for never.
	Reload <-chan os.Signal
	// Version is the program's, for traces.
	Version string
}

// NewLogger returns a logger that writes lines of a format, "text" or "json", from a level on: "debug", "info", "warn" or "error".
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("the log level is to be debug, info, warn or error, found %q", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("the log format is to be text or json, found %q", format)
}

// Check returns what is wrong with the configuration, as far as it shows without opening anything.
func (c *Config) Check() error {
	var wrong []error
	fault := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	switch {
	case c.Types == "" && !c.AnyType:
		fault("say which types are served: --types with a directory of descriptor sets, or --any-type")
	case c.Types != "" && c.AnyType:
		fault("--types and --any-type exclude each other")
	}
	if (c.Cert == "") != (c.Key == "") {
		fault("--tls-cert and --tls-key go together")
	}
	if c.ClientCA != "" && c.Cert == "" {
		fault("--client-ca needs --tls-cert and --tls-key")
	}
	if c.Drain < 0 || c.ReadyTimeout <= 0 {
		fault("--drain is to be 0 or more, --ready-timeout more than 0")
	}
	if c.Listen == "" {
		fault("--listen needs an address")
	}
	for _, a := range []struct{ flag, address string }{{"--listen", c.Listen}, {"--http", c.HTTP}, {"--admin", c.Admin}} {
		if a.address != "" {
			if err := c.checkAddress(a.address); err != nil {
				fault("%s %s: %w", a.flag, a.address, err)
			}
		}
	}
	return errors.Join(wrong...)
}

// checkAddress refuses an address that is none, and one that other machines reach if what is sent there can be read on the way.
func (c *Config) checkAddress(address string) error {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return err
	}
	if c.Cert == "" && !c.Insecure && !at.IP.IsLoopback() {
		return errors.New("other machines reach this address: set --tls-cert and --tls-key, or --insecure to go without TLS")
	}
	return nil
}
