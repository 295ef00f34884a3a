package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	dir  string
	file string // of its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.file = a.save("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) save(name, kind string, der []byte) string {
	file := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

// sign creates a certificate for this machine and its key.
func (a *authority) sign(name string) (cert, key string) {
	a.t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, own.Public(), a.key)
	require.NoError(a.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(own)
	require.NoError(a.t, err)
	return a.save(name+".pem", "CERTIFICATE", der), a.save(name+"-key.pem", "PRIVATE KEY", private)
}

// with returns the runner with other flags.
func (c *runner) with(flags ...string) *runner {
	return &runner{t: c.t, env: c.env, flags: append(append([]string{}, c.flags...), flags...)}
}

func TestServeTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	cert, key := ours.sign("server")
	s := serveStore(t, fileURL(t), "--tls-cert", cert, "--tls-key", key)
	c := s.cli(t)
	require.Equal(t, "core/ConfigMap default/a created\n", c.with("--ca", ours.file).ok(configMap("a", "1"), "apply", "-f", "-"))
	for name, flags := range map[string][]string{"no TLS": nil, "another authority": {"--ca", theirs.file}} {
		r := c.with(flags...).run("", "list", "*", "--timeout", "20s")
		require.Equal(t, cli.ExitFailed, r.code, name)
	}
	require.Equal(t, cli.ExitUsage, c.with("--ca", ours.file, "--insecure").run("", "list", "*").code)
	require.Equal(t, cli.ExitFailed, c.with("--ca", key).run("", "list", "*").code, "no certificate")

	// A new certificate takes effect, while an invalid one changes nothing.
	other, otherKey := theirs.sign("server")
	require.NoError(t, os.WriteFile(cert, []byte("broken"), 0o600))
	s.signal(syscall.SIGHUP)
	s.waitForLog("not reloaded")
	c.with("--ca", ours.file).ok("", "list", "*")
	require.NoError(t, os.Rename(otherKey, key))
	require.NoError(t, os.Rename(other, cert))
	s.signal(syscall.SIGHUP)
	s.waitForLog(`"msg":"reloaded"`)
	c.with("--ca", theirs.file).ok("", "list", "*")
	require.Equal(t, cli.ExitFailed, c.with("--ca", ours.file).run("", "list", "*", "--timeout", "20s").code)
}

func TestServeMutualTLS(t *testing.T) {
	t.Parallel()
	ours, clients, strangers := newAuthority(t), newAuthority(t), newAuthority(t)
	cert, key := ours.sign("server")
	s := serveStore(t, fileURL(t), "--tls-cert", cert, "--tls-key", key, "--client-ca", clients.file, "--admin", "127.0.0.1:0")
	client, clientKey := clients.sign("client")
	stranger, strangerKey := strangers.sign("client")
	c := s.cli(t).with("--ca", ours.file)
	c.with("--cert", client, "--key", clientKey).ok(configMap("a", "1"), "apply", "-f", "-")
	for name, flags := range map[string][]string{"no certificate": nil, "a stranger's": {"--cert", stranger, "--key", strangerKey}} {
		r := c.with(flags...).run("", "list", "*", "--timeout", "20s")
		require.Equal(t, cli.ExitFailed, r.code, name)
	}
	require.Equal(t, cli.ExitFailed, c.with("--cert", client).run("", "list", "*").code, "a certificate without its key")
}

// httpsClient returns a client that trusts an authority and has a certificate.
func httpsClient(t *testing.T, ca, cert, key string) *http.Client {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	text, err := os.ReadFile(ca)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(text))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
