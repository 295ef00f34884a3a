package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// certificates holds the server's certificate and the CA certificates for clients. It reads them from files, and again on demand.
type certificates struct {
	cert, key, clientCA string
	current             atomic.Pointer[identity]
}

// identity is the contents of the files at the last read.
type identity struct {
	server    tls.Certificate
	clientCAs *x509.CertPool // nil if clients need no certificate
}

// load reads the files. If it fails, the previous contents stay in use.
func (f *certificates) load() error {
	var read identity
	var err error
	if read.server, err = tls.LoadX509KeyPair(f.cert, f.key); err != nil {
		return fmt.Errorf("read the certificate %s and the key %s: %w", f.cert, f.key, err)
	}
	if f.clientCA != "" {
		pem, err := os.ReadFile(f.clientCA)
		if err != nil {
			return fmt.Errorf("read the client CA: %w", err)
		}
		read.clientCAs = x509.NewCertPool()
		if !read.clientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("read the client CA: %w", errors.New(f.clientCA+" contains no PEM certificate"))
		}
	}
	f.current.Store(&read)
	return nil
}

// config returns the configuration of a listener for some protocols. If clients is set and a client CA is configured, clients must present
// a certificate.
func (f *certificates) config(clients bool, protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := f.current.Load()
			c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{now.server}}
			if clients && now.clientCAs != nil {
				c.ClientCAs, c.ClientAuth = now.clientCAs, tls.RequireAndVerifyClientCert
			}
			return c, nil
		},
	}
}
