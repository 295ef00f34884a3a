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

// Config is the configuration of a server.
type Config struct {
	// Store is the URL of the store.
	Store string
	// Listen is the address of the gRPC server.
	Listen string
	// HTTP is the address of the HTTP server. Empty: none.
	HTTP string
	// Admin is the address of metrics and probes. If it is empty, they are served at the address HTTP.
	Admin string

	// Cert and Key are the files of the server's certificate and private key, in PEM. Both empty: no TLS.
	Cert, Key string
	// ClientCA is the file of the PEM certificates that must have signed the certificates of clients. Empty: clients need none.
	ClientCA string
	// Insecure allows addresses that other machines can reach without TLS, or with neither tokens nor client certificates.
	Insecure bool

	// Tokens is the token file. Empty: all callers may do everything.
	Tokens string
	// Audit is the file of the audit log. "-" is Out. Empty: none.
	Audit string
	// AuditPolicy sets the detail of the audit log for each type: TYPE=none, TYPE=metadata or TYPE=payload. The first match counts, and
	// metadata is the default.
	AuditPolicy []string
	// RecordAuthor stores the name of the caller's token as the author of each version.
	RecordAuthor bool
	// Expire deletes resources after their time to live.
	Expire bool

	// Types is a directory of descriptor sets. AnyType accepts every type. Exactly one of them must be set.
	Types   string
	AnyType bool

	// MaxConnections is the limit of open connections at Listen and at HTTP, each. 0: a third of the process's file descriptors, at most 10,000.
	MaxConnections int

	// MaxBuffered is the limit of the bytes of answers that wait for their clients. A token can use a quarter of it. 0: 256 MiB.
	MaxBuffered int64

	// DrainDelay is the time between the moment that probes report a stopping server and the drain. Requests are served in the meantime.
	DrainDelay time.Duration
	// Drain is the time that active calls have to end when the server stops.
	Drain time.Duration
	// ConnectionAge is the maximum age of a gRPC connection. Its client must then open a new connection. Active calls continue. 0: never.
	ConnectionAge time.Duration
	// Rate limits the gRPC calls and HTTP requests a second of each token. TotalRate limits the sum of all callers. 0: unlimited.
	Rate, TotalRate float64
	// ReadyTimeout bounds the time that a probe waits for the store.
	ReadyTimeout time.Duration

	// Out receives the audit log if Audit is "-".
	Out io.Writer
	// WriteProbe is the time after which a probe also writes to the store. 0: probes only read.
	WriteProbe time.Duration

	// Logger receives the log of the server.
	Logger *slog.Logger
	// Reload makes the server read its files again at each signal. It also does so when a file changes.
	Reload <-chan os.Signal
	// Version is the version of the program, for traces.
	Version string
}

// NewLogger returns a logger with the format "text" or "json" and the minimum level "debug", "info", "warn" or "error".
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("the log level must be debug, info, warn or error, found %q", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("the log format must be text or json, found %q", format)
}

// The default and the minimum of MaxBuffered. A quarter of the minimum has room for several pages of lists.
const (
	defaultBuffered = 256 << 20
	minBuffered     = 64 << 20
)

// Check returns the errors of the configuration that can be found without opening anything.
func (c *Config) Check() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case c.Types == "" && !c.AnyType:
		fault("no types to serve: set --types to a directory of descriptor sets, or --any-type")
	case c.Types != "" && c.AnyType:
		fault("--types and --any-type are mutually exclusive")
	}
	if (c.Cert == "") != (c.Key == "") {
		fault("--tls-cert and --tls-key must be set together")
	}
	if c.ClientCA != "" && c.Cert == "" {
		fault("--client-ca needs --tls-cert and --tls-key")
	}
	if len(c.AuditPolicy) > 0 && c.Audit == "" {
		fault("--audit-policy needs --audit")
	}
	if _, err := parseAuditPolicy(c.AuditPolicy); err != nil {
		fault("%w", err)
	}
	if c.RecordAuthor && c.Tokens == "" {
		fault("--record-author needs --tokens: callers have no names without them")
	}
	if c.Drain < 0 || c.DrainDelay < 0 || c.WriteProbe < 0 || c.ReadyTimeout <= 0 {
		fault("--drain, --drain-delay and --write-probe must be 0 or more, and --ready-timeout more than 0")
	}
	if c.ConnectionAge < 0 || c.Rate < 0 || c.TotalRate < 0 {
		fault("--connection-age, --rate and --total-rate must be 0 or more")
	}
	if c.MaxConnections < 0 {
		fault("--max-connections must be 0 or more")
	}
	if c.MaxBuffered != 0 && c.MaxBuffered < minBuffered {
		fault("--max-buffered must be %d MiB or more", minBuffered>>20)
	}
	if c.Listen == "" {
		fault("--listen needs an address")
	}
	for _, a := range []struct {
		flag, address string
		identity      bool // its callers must have one
	}{{"--listen", c.Listen, true}, {"--http", c.HTTP, true}, {"--admin", c.Admin, false}} {
		if a.address != "" {
			if err := c.checkAddress(a.address, a.identity); err != nil {
				fault("%s %s: %w", a.flag, a.address, err)
			}
		}
	}
	return errors.Join(errs...)
}

// checkAddress rejects an invalid address, and an address that other machines can reach without TLS or, if identity is set, without an identity.
func (c *Config) checkAddress(address string, identity bool) error {
	if network, path := networkOf(address); network == "unix" {
		if path == "" {
			return errors.New("a unix socket needs a path, such as unix:/run/ashlar.sock")
		}
		return nil
	}
	at, err := net.ResolveTCPAddr("tcp", address)
	switch {
	case err != nil:
		return err
	case c.Insecure || at.IP.IsLoopback():
		return nil
	case c.Cert == "":
		return errors.New("other machines can reach this address: set --tls-cert and --tls-key, or --insecure to serve without TLS")
	case identity && c.Tokens == "" && c.ClientCA == "":
		return errors.New("other machines can reach this address and may do everything: set --tokens or --client-ca, or --insecure to serve every caller")
	}
	return nil
}
