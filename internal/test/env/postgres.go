//go:build integration

package env

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/internal/test/images"
)

const (
	postgresUser     = "postgres"
	postgresPassword = "ashlar"
	postgresDatabase = "ashlar"
)

// PostgresServer is a Postgres server.
type PostgresServer struct {
	*Container

	// URL is the database, as a connection string for pgx; the user may create schemas in it.
	URL string
}

var sharedPostgres shared[*PostgresServer]

// Postgres returns the server that all tests of the binary share: a container, or the one at ASHLAR_TEST_POSTGRES_URL.
func Postgres(t testing.TB) *PostgresServer {
	t.Helper()
	return sharedPostgres.get(t, "Postgres", func() (*PostgresServer, func() error, error) {
		if given := os.Getenv("ASHLAR_TEST_POSTGRES_URL"); given != "" {
			u, err := url.Parse(given)
			if err != nil {
				return nil, nil, fmt.Errorf("ASHLAR_TEST_POSTGRES_URL is not a URL") // not repeated, because it may contain a password
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := pingPostgres(ctx, given); err != nil {
				return nil, nil, fmt.Errorf("ASHLAR_TEST_POSTGRES_URL: %w", err)
			}
			return &PostgresServer{Container: &Container{Addr: u.Host}, URL: given}, nil, nil
		}
		c, err := run(context.Background(), postgresSpec())
		if err != nil {
			return nil, nil, err
		}
		return &PostgresServer{Container: c, URL: postgresURL(c.Addr)}, c.remove, nil
	})
}

// StartPostgres starts a Postgres server for one test. args are passed to it, such as "-c", "wal_level=logical".
func StartPostgres(t testing.TB, args ...string) *PostgresServer {
	t.Helper()
	c := start(t, postgresSpec(args...))
	return &PostgresServer{Container: c, URL: postgresURL(c.Addr)}
}

func postgresSpec(args ...string) spec {
	// For each connection, a client derives a key by 4096 iterations, which took a third of the CPU of package postgres's tests.
	// Postgres 15 has no setting for their number.
	initdb := "--set=scram_iterations=1"
	if strings.HasPrefix(images.Postgres(), "postgres:15") {
		initdb = ""
	}
	return spec{
		name: "Postgres", image: images.Postgres(), port: 5432, wait: true,
		env: map[string]string{
			"POSTGRES_USER": postgresUser, "POSTGRES_PASSWORD": postgresPassword, "POSTGRES_DB": postgresDatabase,
			"PGDATA": postgresData, "POSTGRES_INITDB_ARGS": initdb,
		},
		cmd: append([]string{"postgres", "-c", "max_connections=400"}, args...),
		ready: func(ctx context.Context, addr string) error {
			return pingPostgres(ctx, postgresURL(addr))
		},
	}
}

// postgresData is the data directory in the official images of all releases, by default or by setting.
const postgresData = "/var/lib/postgresql/data/pg"

func postgresURL(addr string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(postgresUser, postgresPassword), Host: addr, Path: "/" + postgresDatabase,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

func pingPostgres(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(ctx, "SELECT 1")
	return err
}

// Connect opens a connection to the server, closed at the end of the test.
func (s *PostgresServer) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		t.Fatalf("env: connecting to Postgres: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = conn.Close(ctx) // the test may have killed the server
	})
	return conn
}

// Schema returns the name of a schema that no other test uses. The end of the test drops it, if it exists.
func (s *PostgresServer) Schema(t testing.TB) string {
	t.Helper()
	schema := "t_" + unique()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		conn, err := pgx.Connect(ctx, s.URL)
		if err != nil {
			t.Logf("env: schema %s stays: %v", schema, err) // the test may have stopped its server
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{schema}.Sanitize()+" CASCADE"); err != nil {
			t.Logf("env: schema %s stays: %v", schema, err)
		}
	})
	return schema
}

// StoreURL returns the URL of an empty store, in a schema of its own that is dropped at the end of the test. params are further
// parameters, as "name=value".
func (s *PostgresServer) StoreURL(t testing.TB, params ...string) string {
	t.Helper()
	return s.StoreURLIn(t, s.Schema(t), params...)
}

// StoreURLIn returns the URL of the store in a schema.
func (s *PostgresServer) StoreURLIn(t testing.TB, schema string, params ...string) string {
	t.Helper()
	return withParams(t, s.URL, append([]string{"schema=" + schema}, params...)...)
}

// At returns the same server at another address, such as a proxy's.
func (s *PostgresServer) At(t testing.TB, addr string) *PostgresServer {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatalf("env: %v", err)
	}
	u.Host = addr
	return &PostgresServer{Container: s.Container, URL: u.String()}
}

// host returns the address of the server for other containers.
func (s *PostgresServer) host(t testing.TB) string { return net.JoinHostPort(s.IP(t), "5432") }

// withParams adds "name=value" parameters to a URL.
func withParams(t testing.TB, raw string, params ...string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatalf("env: %v", err)
	}
	q := u.Query()
	for _, p := range params {
		v, err := url.ParseQuery(p)
		if err != nil {
			t.Fatalf("env: parameter %q: %v", p, err)
		}
		for name, values := range v {
			q[name] = values
		}
	}
	u.RawQuery = q.Encode()
	return u.String()
}
