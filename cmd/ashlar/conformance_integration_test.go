//go:build integration && soak

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/internal/test/env"
)

// remainingSchemas returns a function that finds the command's schemas.
func remainingSchemas(t *testing.T, server *env.PostgresServer) func(name string) []string {
	return func(name string) []string {
		rows, err := server.Connect(t).Query(context.Background(), "select nspname from pg_namespace where strpos(nspname, $1) > 0", name)
		require.NoError(t, err)
		schemas, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return schemas
	}
}

// crashCommand returns a command that kills all processes of a server at once and restarts it. Data that was not written to the kernel is
// lost.
func crashCommand(t *testing.T, c *env.Container) string {
	id := c.ID(t)
	return "docker kill " + id + " && docker wait " + id + " && docker start " + id
}

// A sound Postgres keeps every guarantee, also through crashes.
func TestConformanceOfPostgres(t *testing.T) {
	server := env.StartPostgres(t)
	u, err := url.Parse(server.StoreURL(t))
	require.NoError(t, err)
	password := rand.Text()
	_, err = server.Connect(t).Exec(t.Context(), "create role app login password '"+password+"'; grant create on database ashlar to app")
	require.NoError(t, err)
	u.User = url.UserPassword("app", password)
	r := checkConformance(t, u.String(), remainingSchemas(t, server), "--faults", "--for", "20s", "--crash-command", crashCommand(t, server.Container))
	require.Equal(t, cli.ExitOK, r.code)
	require.Contains(t, r.out, " 0 broken, 2 not checked;")
	require.Regexp(t, `faults: .*lose answer \d+, .*kill server \d+`, r.out)
}

// A Postgres that acknowledges commits before it writes its log loses acknowledged writes in a crash.
func TestConformanceFindsAsynchronousCommit(t *testing.T) {
	server := env.StartPostgres(t, "-c", "synchronous_commit=off")
	r := newRunner(t, server.StoreURL(t)).conformance(t.Context(), "--faults", "--for", "1m", "--run", "Faults", "--crash-command", crashCommand(t, server.Container))
	require.Equal(t, cli.ExitFailed, r.code)
	require.Regexp(t, `(?m)^✗ .*  `+lossText(t)+`$`, r.out)
	require.Contains(t, r.err, "ashlar: a guarantee is broken: "+lossText(t))
	require.Empty(t, remainingSchemas(t, server)("ashlar_conformance_"))
}

func TestConformanceOfEtcd(t *testing.T) {
	server := env.StartEtcd(t)
	storeURL := server.StoreURL(t)
	left := func(name string) (keys []string) {
		got, err := server.Client(t).Get(context.Background(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		require.NoError(t, err)
		for _, kv := range got.Kvs {
			if strings.Contains(string(kv.Key), name) {
				keys = append(keys, string(kv.Key))
			}
		}
		return keys
	}
	r := checkConformance(t, storeURL, left, append(quick, "--for", "10s")...)
	require.Equal(t, cli.ExitOK, r.code)
	require.Regexp(t, `faults: .*lose answer \d+`, r.out)
}

func TestConformanceOfDynamoDB(t *testing.T) {
	server := env.StartDynamoDB(t)
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithRegion(server.Region))
	require.NoError(t, err)
	db := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { o.BaseEndpoint = aws.String(server.Endpoint) })
	left := func(name string) (tables []string) {
		all, err := db.ListTables(t.Context(), &dynamodb.ListTablesInput{})
		require.NoError(t, err)
		require.NotEmpty(t, all.TableNames, "the user's tables")
		for _, table := range all.TableNames {
			if strings.Contains(table, name) {
				tables = append(tables, table)
			}
		}
		return tables
	}
	r := checkConformance(t, server.StoreURL(t), left, append(quick, "--for", "10s")...)
	require.Equal(t, cli.ExitOK, r.code)
	require.Regexp(t, `faults: .*lose answer \d+`, r.out)
}

// Over an encrypted connection with a verified server name, all faults except lost answers are injected.
func TestConformanceOverTLS(t *testing.T) {
	server := env.StartPostgres(t)
	certificate, key := selfSigned(t)
	server.Exec(t, "sh", "-c", "cd /tmp && printf %s '"+certificate+"' > server.crt && printf %s '"+key+"' > server.key && chown postgres server.* && chmod 600 server.key")
	conn := server.Connect(t)
	for _, sql := range []string{
		"alter system set ssl_cert_file = '/tmp/server.crt'", "alter system set ssl_key_file = '/tmp/server.key'",
		"alter system set ssl = on", "select pg_reload_conf()",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	root := write(t, t.TempDir(), "root.crt", certificate)
	storeURL := strings.Replace(server.StoreURL(t), "sslmode=disable", "sslmode=verify-full&sslrootcert="+url.QueryEscape(root), 1)
	r := checkConformance(t, storeURL, remainingSchemas(t, server), "--faults", "--for", "10s", "--run", "Faults")
	require.Equal(t, cli.ExitOK, r.code)
	require.Regexp(t, `faults: cut \d+, .*delay \d+`, r.out)
	require.NotContains(t, r.out, "lose answer")
}

// selfSigned returns a certificate for loopback and its key, in PEM.
func selfSigned(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	bytes, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return encode("CERTIFICATE", der), encode("EC PRIVATE KEY", bytes)
}
