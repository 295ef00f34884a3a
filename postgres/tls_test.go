//go:build integration

package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestChannelBinding opens a store over TLS with a required channel binding.
func TestChannelBinding(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.StartPostgres(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), SignatureAlgorithm: x509.ECDSAWithSHA256}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"/tmp/server.crt": {Type: "CERTIFICATE", Bytes: certificate},
		"/tmp/server.key": {Type: "PRIVATE KEY", Bytes: encoded},
	} {
		server.Exec(t, "sh", "-c", "echo "+base64.StdEncoding.EncodeToString(pem.EncodeToMemory(block))+" | base64 -d > "+name+
			" && chmod 600 "+name+" && chown postgres "+name)
	}
	conn := server.Connect(t)
	for _, sql := range []string{
		"alter system set ssl_cert_file = '/tmp/server.crt'", "alter system set ssl_key_file = '/tmp/server.key'",
		"alter system set ssl = on", "select pg_reload_conf()",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	encrypted := strings.Replace(server.URL, "sslmode=disable", "sslmode=require", 1)
	fixture.Eventually(t, "the server to encrypt", func() bool {
		c, err := pgx.Connect(ctx, encrypted)
		if err == nil {
			_ = c.Close(ctx)
		}
		return err == nil
	})

	storeURL := server.StoreURL(t, "channel_binding=require")
	b := fixture.Open(t, strings.Replace(storeURL, "sslmode=disable", "sslmode=require", 1))
	stored := fixture.Write(t, b, fixture.Resource("bound", "v"))
	w := fixture.WatchAll(t, b)
	expect(t, "snapshot", w, stored)
}
