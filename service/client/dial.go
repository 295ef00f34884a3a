package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
)

// Options configure a connection to a server.
type Options struct {
	// Address is the server's host:port, or unix: and the path of its socket.
	Address string
	// Token identifies the caller to the server. Empty: none.
	Token string
	// CA is the file of the certificates that sign the server's certificate. Empty: the system's certificates.
	CA string
	// Cert and Key are the files of the caller's certificate and private key. Empty: none.
	Cert, Key string
	// Insecure disables TLS for servers on other machines, too. A connection to a server on this machine uses TLS only if one of the files
	// is set.
	Insecure bool
	// Types are the types whose group versions the caller can decode. The server converts resources of these kinds to these versions in
	// lists, watches and reads of the past. It sends resources of other kinds as they are stored.
	Types []*resourcepb.Type
}

// Keepalive: the idle time before a ping, and the time allowed for its answer.
const (
	pingAfter   = 30 * time.Second
	pingTimeout = 20 * time.Second
)

// reconnectBackoff sets the pauses between two attempts to reach a server.
var reconnectBackoff = backoff.Config{BaseDelay: minPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxPause}

// connectTimeout bounds the time until a server accepts a connection.
const connectTimeout = 20 * time.Second

// Dial returns a backend that calls a server. It connects at the first call.
func Dial(o Options) (*Backend, error) {
	host, port, err := net.SplitHostPort(o.Address)
	switch {
	case strings.HasPrefix(o.Address, "unix:"):
		host = "localhost"
	case err != nil || port == "":
		return nil, fmt.Errorf("%w: a server must be host:port or unix:PATH, found %q", storage.ErrInvalid, o.Address)
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		// Otherwise every call would fail with an error that does not mention the token. The token itself never appears in messages.
		return nil, fmt.Errorf("%w: the token contains a space, a line break or a character that is not ASCII", storage.ErrInvalid)
	}
	creds, err := o.credentials(host)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(o.Address,
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithDefaultServiceConfig(retryPolicy),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnectBackoff, MinConnectTimeout: connectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return call(o.withToken(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(o.withToken(ctx), desc, cc, method, opts...)
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("%w: the server %q: %w", storage.ErrInvalid, o.Address, err)
	}
	b := newBackend(resourcegrpc.NewResourceServiceClient(conn), resourcegrpc.NewHistoryServiceClient(conn), o.Types)
	b.conn, b.address = conn, o.Address
	return b, nil
}

// New returns a backend that calls a server in the same process, without a token. types are as in Options. Closing the backend does not close the server.
func New(s *service.Server, types ...*resourcepb.Type) *Backend {
	b := newBackend(s.Client(), s.History(), types)
	b.address = "in the same process"
	return b
}

func newBackend(s resourcegrpc.ResourceServiceClient, h resourcegrpc.HistoryServiceClient, types []*resourcepb.Type) *Backend {
	b := &Backend{service: s, history: h, versions: map[storage.UnversionedType]string{}}
	for _, t := range types {
		b.versions[storage.UnversionedTypeFrom(t)] = t.GetGroupVersion()
	}
	b.lifetime, b.cancel = context.WithCancelCause(context.Background())
	return b
}

// withToken adds the token to a call.
func (o *Options) withToken(ctx context.Context) context.Context {
	if o.Token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+o.Token)
}

// credentials returns the transport credentials for a host.
func (o *Options) credentials(host string) (credentials.TransportCredentials, error) {
	files := o.CA != "" || o.Cert != "" || o.Key != ""
	ip := net.ParseIP(host)
	local := host == "localhost" || ip != nil && ip.IsLoopback()
	switch {
	case files && o.Insecure:
		return nil, fmt.Errorf("%w: certificates and insecure exclude each other", storage.ErrInvalid)
	case o.Insecure, local && !files:
		return insecure.NewCredentials(), nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("read the certificates of the server's signers: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("read the certificates of the server's signers: " + o.CA + " contains no PEM certificate")
		}
	}
	if o.Cert != "" || o.Key != "" {
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate %s and the key %s: %w", o.Cert, o.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(c), nil
}
