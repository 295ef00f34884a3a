//go:build integration

package env

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/testcontainers/testcontainers-go"

	"github.com/ashlar-dev/storage/internal/test/images"
)

// PgBouncerServer is a connection pooler in front of a Postgres server.
type PgBouncerServer struct {
	*Container

	// URL is the database's URL through the pooler.
	URL string
	// Direct is the server behind the pooler, for features that a pooler does not support.
	Direct *PostgresServer
}

// StartPgBouncer starts PgBouncer for one test, in transaction mode with default settings, in front of a server in a container.
func StartPgBouncer(t testing.TB, s *PostgresServer) *PgBouncerServer {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatalf("env: %v", err)
	}
	password, _ := u.User.Password()
	host, port, _ := strings.Cut(s.host(t), ":")
	through := func(addr string) string {
		v := *u
		v.Host = addr
		return v.String()
	}
	c := start(t, spec{
		name: "PgBouncer", image: images.PgBouncer(), port: 5432, wait: true,
		entry: []string{"pgbouncer", "/etc/pgbouncer/pgbouncer.ini"},
		files: []testcontainers.ContainerFile{
			{
				Reader: strings.NewReader(fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = *
listen_port = 5432
auth_type = scram-sha-256
auth_file = /etc/pgbouncer/userlist.txt
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 40
`, host, port)),
				ContainerFilePath: "/etc/pgbouncer/pgbouncer.ini", FileMode: 0o666,
			},
			{
				Reader:            strings.NewReader(fmt.Sprintf("%q %q\n", u.User.Username(), password)),
				ContainerFilePath: "/etc/pgbouncer/userlist.txt", FileMode: 0o644,
			},
		},
		ready: func(ctx context.Context, addr string) error { return pingPostgres(ctx, through(addr)) },
	})
	return &PgBouncerServer{Container: c, URL: through(c.Addr), Direct: s}
}

// StoreURL returns the URL, through the pooler, of an empty store in a schema of its own that is dropped at the end of the test.
// params are further parameters, as "name=value".
func (s *PgBouncerServer) StoreURL(t testing.TB, params ...string) string {
	t.Helper()
	return withParams(t, s.URL, append([]string{"schema=" + s.Direct.Schema(t)}, params...)...)
}

// Switch makes the pooler use another server. It ends the connections to the previous one when their transactions have ended.
func (s *PgBouncerServer) Switch(t testing.TB, to *PostgresServer) {
	t.Helper()
	host, port, _ := strings.Cut(to.host(t), ":")
	s.Exec(t, "sh", "-c", fmt.Sprintf("cat /etc/pgbouncer/pgbouncer.ini > /tmp/ini && sed 's/^\\* = .*/* = host=%s port=%s/' /tmp/ini > /etc/pgbouncer/pgbouncer.ini && kill -HUP 1", host, port))
	s.Direct = to
}
