//go:build integration

package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

// sign creates a certificate for a name, and writes it and its key to files. The first certificate is the authority's own.
func (a *authority) sign(t *testing.T, name string, serial int64) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid = true, true
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		a.key, a.file = key, certFile
	}
	return certFile, keyFile
}

// terminate starts a TLS proxy for a server. It accepts clients with a certificate of the authority.
func terminate(t *testing.T, ca *authority, target string) (addr string) {
	t.Helper()
	certFile, keyFile := ca.sign(t, "etcd.test", 2)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer client.Close()
				server, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer context.AfterFunc(ctx, func() { client.Close(); server.Close() })()
				var both sync.WaitGroup
				both.Go(func() { _, _ = io.Copy(server, client); server.Close() })
				both.Go(func() { _, _ = io.Copy(client, server); client.Close() })
				both.Wait()
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); all.Wait() })
	return l.Addr().String()
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	prefix := server.Prefix(t)
	ca := &authority{}
	ca.sign(t, "authority.test", 1)
	addr := terminate(t, ca, server.Endpoint)
	cert, key := ca.sign(t, "client.test", 3)
	at := func(params url.Values) string {
		return (&url.URL{Scheme: "etcds", Host: addr, Path: "/" + prefix, RawQuery: params.Encode()}).String()
	}

	b := open(t, at(url.Values{"ca": {ca.file}, "cert": {cert}, "key": {key}, "server-name": {"etcd.test"}}))
	w := fixture.WatchChanges(t, b)
	res := fixture.Write(t, b, service("a"))
	wantNext(t, w, upserted(res))
	if got := fixture.Stored(t, open(t, at(url.Values{"insecure": {"on"}, "cert": {cert}, "key": {key}})), res.Id); got.GetVersion() != res.Version {
		t.Errorf("stored is %v, want version %s", got, res.Version)
	}

	for name, params := range map[string]url.Values{
		"without a certificate": {"ca": {ca.file}, "server-name": {"etcd.test"}, "timeout": {"2s"}},
		"with a wrong name":     {"ca": {ca.file}, "cert": {cert}, "key": {key}, "server-name": {"other.test"}, "timeout": {"2s"}},
	} {
		if _, err := etcd.Open(t.Context(), parsed(t, at(params))); err == nil {
			t.Errorf("%s: the store opens", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	for name, params := range map[string]url.Values{
		"no such file":   {"ca": {"/does/not/exist"}},
		"no certificate": {"ca": {key}},
		"no key":         {"cert": {cert}, "key": {cert}},
	} {
		if _, err := etcd.Open(t.Context(), parsed(t, at(params))); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}
