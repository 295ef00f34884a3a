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
)

// target is what a URL says.
type target struct {
	endpoints      []string
	user, password string
	tls            *tlsFiles // nil without TLS
	dialTimeout    time.Duration
	options        Options
}

// tlsFiles is where the keys of a TLS connection are.
type tlsFiles struct {
	ca, cert, key, serverName string
	insecure                  bool
}

const defaultPort = "2379"

// parseURL reads etcd://user:password@host:2379,host:2379/prefix?parameters.
func parseURL(u *url.URL) (*target, error) {
	t := &target{}
	if u.Opaque != "" || u.Host == "" {
		return nil, fmt.Errorf("%w: an etcd URL names its servers, as in etcd://host:2379,host2:2379/prefix", storage.ErrInvalid)
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
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	if err := t.options.fill(); err != nil {
		return nil, err
	}
	if t.tls != nil && (t.tls.cert == "") != (t.tls.key == "") {
		return nil, fmt.Errorf("%w: URL parameters cert and key go together", storage.ErrInvalid)
	}
	if err := t.hosts(scheme, u.Host); err != nil {
		return nil, err
	}
	return t, t.credentials(u.User, passwordFile)
}

func (t *target) hosts(scheme, hosts string) error {
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

func (t *target) credentials(user *url.Userinfo, passwordFile string) error {
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
		return fmt.Errorf("%w: the etcd URL has a user or a password without the other", storage.ErrInvalid)
	}
	return nil
}

// config reads the files.
func (f *tlsFiles) config() (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: f.insecure, //nolint:gosec // the operator asked for it by name
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("%w: URL parameter ca: %w", storage.ErrInvalid, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: URL parameter ca: the file holds no certificate in PEM", storage.ErrInvalid)
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
		// The client takes the name from the endpoint, whatever the configuration says.
		c.InsecureSkipVerify = true //nolint:gosec // verified below
		c.VerifyConnection = func(state tls.ConnectionState) error { return verify(state, c.RootCAs, f.serverName) }
	}
	return c, nil
}

// verify checks a server's certificate as crypto/tls does, for a name of our own.
func verify(state tls.ConnectionState, roots *x509.CertPool, name string) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server has shown no certificate")
	}
	opts := x509.VerifyOptions{Roots: roots, DNSName: name, Intermediates: x509.NewCertPool()}
	for _, cert := range state.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(opts)
	return err
}

// newClient makes a client that notices a server which has fallen silent within a quarter of a minute. With a user name it asks
// for a token at once, so a cluster that is out of reach is found here, else at the first request.
func newClient(ctx context.Context, target *target) (*clientv3.Client, error) {
	var config *tls.Config
	if target.tls != nil {
		var err error
		if config, err = target.tls.config(); err != nil {
			return nil, err
		}
	}
	patience := target.dialTimeout
	if end, has := ctx.Deadline(); has {
		patience = min(patience, max(time.Until(end), time.Millisecond))
	}
	var how []grpc.DialOption
	if f := dial.From(ctx); f != nil {
		how = append(how, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return f(ctx, "tcp", address) }))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            target.endpoints,
		TLS:                  config,
		Username:             target.user,
		Password:             target.password,
		DialTimeout:          patience,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		MaxCallSendMsgSize:   target.options.MaxRequestBytes + requestOverhead,
		Logger:               zap.NewNop(), // what matters is returned as an error
		DialOptions: append(how, grpc.WithConnectParams(grpc.ConnectParams{
			// gRPC's own backoff goes up to two minutes, for which a server that is back would stand unused.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: target.dialTimeout,
		}), grpc.WithChainUnaryInterceptor(failFast)),
	})
	switch {
	case err == nil:
		return client, nil
	case classify(err) == rejectedForGood:
		return nil, err // a wrong password, for one
	}
	return nil, unavailable(ctx, err)
}

// failFast has a request fail while there is no connection, where the client would have it wait without a word: so the error
// can say why there is none, and a write is known not to have been sent.
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

// newScratch names prefixes below that of u, where its user may write. The keys of u's store begin otherwise (see layout).
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
			u, _ := store(number) // looked at above
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
