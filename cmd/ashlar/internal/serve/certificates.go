package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// certificates are the server's certificate and those that clients' certificates are signed by, read from files and read again on demand.
type certificates struct {
	cert, key, clientCA string
	current             atomic.Pointer[identity]
}

// identity is what the files of certificates held when they were read.
type identity struct {
	server    tls.Certificate
	clientCAs *x509.CertPool // nil if clientCAs need no certificate
}

// newCertificates reads the files. It returns nil if none are configured.
func newCertificates(c *Config) (*certificates, error) {
	if c.Cert == "" {
		return nil, nil
	}
	files := &certificates{cert: c.Cert, key: c.Key, clientCA: c.ClientCA}
	return files, files.load()
}

// load reads the files. If that fails, what was read before stays.
func (f *certificates) load() error {
	var read identity
	var err error
	if read.server, err = tls.LoadX509KeyPair(f.cert, f.key); err != nil {
		return fmt.Errorf("read the certificate %s and the key %s: %w", f.cert, f.key, err)
	}
	if f.clientCA != "" {
		pem, err := os.ReadFile(f.clientCA)
		if err != nil {
			return fmt.Errorf("read the certificates that sign those of clients: %w", err)
		}
		read.clientCAs = x509.NewCertPool()
		if !read.clientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("read the certificates that sign those of clients: %w", errors.New(f.clientCA+" holds no certificate in PEM"))
		}
	}
	f.current.Store(&read)
	return nil
}

// config returns the configuration of a listener that speaks some protocols. With clients it demands certificates of them, if there is a
// file to check these by.
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
