package relay

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/relays"
)

// identity is what a process shows to others: its certificate, and the tokens that it expects.
type identity struct {
	certificate tls.Certificate
	keyHash     string
	tokens      []string       // the first one is sent, all are accepted
	roots       *x509.CertPool // nil: the key must have the published hash
	fileToken   bool           // the token comes from a file, and is not published
}

func newIdentity(o relays.Options) (*identity, error) {
	id := &identity{tokens: []string{rand.Text()}}
	if (o.Cert == "") != (o.Key == "") {
		return nil, fmt.Errorf("%w: relay-cert and relay-key: expected both or neither", storage.ErrInvalid)
	}
	if o.Cert != "" && o.CA == "" {
		return nil, fmt.Errorf("%w: relay-cert requires relay-ca, because the process also subscribes", storage.ErrInvalid)
	}
	var err error
	if o.Cert != "" {
		id.certificate, err = tls.LoadX509KeyPair(o.Cert, o.Key)
	} else {
		id.certificate, err = newCertificate()
	}
	if err != nil {
		return nil, fmt.Errorf("certificate of the relay: %w", err)
	}
	if id.keyHash, err = keyHash(id.certificate.Certificate[0]); err != nil {
		return nil, err
	}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("relay-ca: %w", err)
		}
		id.roots = x509.NewCertPool()
		if !id.roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: relay-ca: %s has no certificate", storage.ErrInvalid, o.CA)
		}
	}
	if o.TokenFile != "" {
		text, err := os.ReadFile(o.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("relay-token-file: %w", err)
		}
		if id.tokens = strings.Fields(string(text)); len(id.tokens) == 0 {
			return nil, fmt.Errorf("%w: relay-token-file: %s is empty", storage.ErrInvalid, o.TokenFile)
		}
		id.fileToken = true
	}
	return id, nil
}

// newCertificate returns a certificate whose key is new. Only the hash of the key counts.
func newCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ashlar relay"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280: no expiry
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// keyHash returns the hash of the public key of a certificate.
func keyHash(der []byte) (string, error) {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:]), nil
}

// serverTLS is the configuration of the listener.
func (id *identity) serverTLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{id.certificate}, MinVersion: tls.VersionTLS13}
}

// clientTLS is the configuration of a connection to a process with a published key.
func (id *identity) clientTLS(address, published string) *tls.Config {
	host, _, _ := net.SplitHostPort(address)
	if id.roots != nil {
		return &tls.Config{RootCAs: id.roots, ServerName: host, MinVersion: tls.VersionTLS13}
	}
	return &tls.Config{
		ServerName: host, MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection replaces it
		VerifyConnection: func(s tls.ConnectionState) error {
			shown, err := keyHash(s.PeerCertificates[0].Raw)
			if err == nil && subtle.ConstantTimeCompare([]byte(shown), []byte(published)) != 1 {
				err = errors.New("the relay's key differs from the published key")
			}
			return err
		},
	}
}

// accepts reports whether a caller's token is an expected one.
func (id *identity) accepts(token string) bool {
	a, equal := sha256.Sum256([]byte(token)), 0
	for _, expected := range id.tokens {
		b := sha256.Sum256([]byte(expected))
		equal |= subtle.ConstantTimeCompare(a[:], b[:])
	}
	return equal == 1
}

// tokenFor returns the token that a process with a published token expects.
func (id *identity) tokenFor(published string) string {
	if id.fileToken {
		return id.tokens[0]
	}
	return published
}
