package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/dial"
	"github.com/ashlar-dev/storage/internal/params"
	"github.com/ashlar-dev/storage/internal/scratchstore"
	"github.com/ashlar-dev/storage/telemetry"
)

// target is a parsed URL.
type target struct {
	endpoints      []string
	user, password string
	tls            *tlsFiles // nil without TLS
	dialTimeout    time.Duration
	options        Options
}

// tlsFiles is the TLS configuration in a URL: paths of PEM files and the expected server name.
type tlsFiles struct {
	ca, cert, key, serverName string
	insecure                  bool
}

const defaultPort = "2379"

// parseURL reads etcd://user:password@host:2379,host:2379/prefix?parameters.
func parseURL(u *url.URL) (*target, error) {
	t := &target{}
	if u.Opaque != "" || u.Host == "" {
		return nil, fmt.Errorf("%w: the etcd URL has no host; expected etcd://host:2379,host2:2379/prefix", storage.ErrInvalid)
	}
	if err := params.CheckCredentials(u); err != nil {
		return nil, err
	}
	scheme := "http://"
	v := params.Parse(u)
	if u.Scheme == "etcds" {
		scheme = "https://"
		t.tls = &tlsFiles{
			ca:         v.String("ca", ""),
			cert:       v.String("cert", ""),
			key:        v.String("key", ""),
			serverName: v.String("server-name", ""),
			insecure:   v.OnOff("insecure", false),
		}
	}
	t.dialTimeout = v.Duration("dial-timeout", dialTimeout)
	passwordFile := v.String("password-file", "")
	t.options = Options{
		Prefix:          strings.TrimRight(strings.TrimPrefix(u.Path, "/"), "/"),
		Timeout:         v.Duration("timeout", defaultTimeout),
		MaxSize:         v.Int("max-size", 0, 1, driver.MaxSize),
		MaxTxnOps:       v.Int("max-txn-ops", defaultTxnOps, minTxnOps, 1<<16),
		MaxRequestBytes: v.Int("max-request-bytes", defaultRequest, defaultRequest, 1<<30),
		Outage:          v.Duration("outage", defaultOutage),
		NoCreate:        !v.OnOff("create", true),
		Telemetry:       telemetry.Options{Logger: v.Logger()},
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	if err := t.options.fill(); err != nil {
		return nil, err
	}
	if t.tls != nil && (t.tls.cert == "") != (t.tls.key == "") {
		return nil, fmt.Errorf("%w: URL parameters cert and key must be set together", storage.ErrInvalid)
	}
	if err := t.setEndpoints(scheme, u.Host); err != nil {
		return nil, err
	}
	return t, t.setCredentials(u.User, passwordFile)
}

func (t *target) setEndpoints(scheme, hosts string) error {
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return fmt.Errorf("%w: the etcd URL has an empty host", storage.ErrInvalid)
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), defaultPort)
		}
		if _, port, err := net.SplitHostPort(host); err != nil || port == "" {
			return fmt.Errorf("%w: the etcd URL has the host %q, expected name:port", storage.ErrInvalid, host)
		}
		t.endpoints = append(t.endpoints, scheme+host)
	}
	return nil
}

func (t *target) setCredentials(user *url.Userinfo, passwordFile string) error {
	if user != nil {
		t.user = user.Username()
		t.password, _ = user.Password()
	}
	if passwordFile != "" {
		if t.password != "" {
			return fmt.Errorf("%w: the etcd URL has both a password and a password-file", storage.ErrInvalid)
		}
		data, err := os.ReadFile(passwordFile)
		if err != nil {
			return fmt.Errorf("%w: URL parameter password-file: %w", storage.ErrInvalid, err)
		}
		t.password = strings.TrimRight(string(data), "\r\n")
	}
	if (t.user == "") != (t.password == "") {
		return fmt.Errorf("%w: the etcd URL must have both a user and a password, or neither", storage.ErrInvalid)
	}
	return nil
}

// config returns the TLS configuration with the contents of the files.
func (f *tlsFiles) config() (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: f.insecure, //nolint:gosec // the operator has set insecure=on
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("%w: URL parameter ca: %w", storage.ErrInvalid, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: URL parameter ca: the file has no PEM certificate", storage.ErrInvalid)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("%w: URL parameters cert and key: %w", storage.ErrInvalid, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if f.serverName != "" && !f.insecure {
		// The client overwrites ServerName with the host of the endpoint.
		c.InsecureSkipVerify = true //nolint:gosec // verified below
		c.VerifyConnection = func(state tls.ConnectionState) error { return verify(state, c.RootCAs, f.serverName) }
	}
	return c, nil
}

// verify checks a server's certificate like crypto/tls, but for the given name.
func verify(state tls.ConnectionState, roots *x509.CertPool, name string) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server has sent no certificate")
	}
	opts := x509.VerifyOptions{Roots: roots, DNSName: name, Intermediates: x509.NewCertPool()}
	for _, cert := range state.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(opts)
	return err
}

// newClient returns a client that detects an unresponsive server within 15 seconds. With a user name it requests a token at once, so it
// fails if the cluster is unreachable. Otherwise the first request fails.
func newClient(ctx context.Context, target *target) (*clientv3.Client, error) {
	var config *tls.Config
	if target.tls != nil {
		var err error
		if config, err = target.tls.config(); err != nil {
			return nil, err
		}
	}
	timeout := target.dialTimeout
	if end, has := ctx.Deadline(); has {
		timeout = min(timeout, max(time.Until(end), time.Millisecond))
	}
	var dialOptions []grpc.DialOption
	if f := dial.From(ctx); f != nil {
		dialOptions = append(dialOptions, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return f(ctx, "tcp", address) }))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            target.endpoints,
		TLS:                  config,
		Username:             target.user,
		Password:             target.password,
		DialTimeout:          timeout,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		MaxCallSendMsgSize:   target.options.MaxRequestBytes + requestOverhead,
		Logger:               zap.NewNop(), // failures are returned as errors
		DialOptions: append(dialOptions, grpc.WithConnectParams(grpc.ConnectParams{
			// gRPC's own backoff increases to two minutes, too long for a server that is available again.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: target.dialTimeout,
		}), grpc.WithChainUnaryInterceptor(failFast)),
	})
	switch {
	case err == nil:
		return client, nil
	case classify(err) == rejectedForGood:
		return nil, err // for example a wrong password
	}
	return nil, unavailable(ctx, err)
}

// failFast makes a request fail if there is no connection. By default the client blocks until there is one. With failFast the error
// contains the cause, and shows that a write was not sent.
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

// newScratch returns a space of stores under prefixes below the prefix of u, where the user of u has write permission. The store of u has
// no keys there (see layout).
func newScratch(u *url.URL, name string) (*scratchstore.Space, error) {
	target, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	prefix := target.options.Prefix + "/" + name + "/"
	store := func(number int) (*url.URL, error) {
		other := *u
		query := other.Query()
		query.Del("create")
		other.Path, other.RawPath, other.RawQuery = "/"+fmt.Sprint(prefix, number), "", query.Encode()
		_, err := parseURL(&other)
		return &other, err
	}
	if _, err := store(1_000_000); err != nil {
		return nil, err // the prefix is too long
	}
	return &scratchstore.Space{
		Location: fmt.Sprintf("the keys that begin with %q", prefix),
		Store: func(number int) *url.URL {
			u, _ := store(number) // checked above
			return u
		},
		Drop: func(ctx context.Context) error {
			client, err := newClient(ctx, target)
			if err != nil {
				return err
			}
			if _, err = client.Delete(ctx, prefix, clientv3.WithPrefix()); err != nil && classify(err) != rejectedForGood {
				err = unavailable(ctx, err)
			}
			return errors.Join(err, client.Close())
		},
	}, nil
}

func init() { scratchstore.Register(newScratch, "etcd", "etcds") }
