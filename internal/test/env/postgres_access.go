//go:build integration

package env

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Direct returns the same server at its container's own address, without Docker's port proxy. The proxy copies bytes in user space
// and makes each round trip more expensive, which favours the side with fewer round trips. It needs a daemon on this machine;
// otherwise, and for a server given by URL, Direct returns the server unchanged.
func (s *PostgresServer) Direct(t testing.TB) *PostgresServer {
	t.Helper()
	if s.ctr == nil {
		return s
	}
	direct := s.At(t, s.host(t))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := pingPostgres(ctx, direct.URL); err != nil {
		t.Fatalf("env: the container cannot be reached at its own address, %s: %v", s.host(t), err)
	}
	return direct
}

// Database creates a database on the same server, dropped at the end of the test, for permissions and settings of a database. options
// are those of CREATE DATABASE.
func (s *PostgresServer) Database(t testing.TB, options ...string) *PostgresServer {
	t.Helper()
	name := "d_" + unique()
	s.run(t, "CREATE DATABASE "+name+" "+strings.Join(options, " "))
	t.Cleanup(func() { s.run(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	u := s.parseURL(t)
	u.Path = "/" + name
	return &PostgresServer{Container: s.Container, URL: u.String()}
}

// Copy creates a copy of this database, which must have no connections. It is dropped at the end of the test.
func (s *PostgresServer) Copy(t testing.TB) *PostgresServer {
	t.Helper()
	u := s.parseURL(t)
	original := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres" // which every server has
	other := &PostgresServer{Container: s.Container, URL: u.String()}
	name := "d_" + unique()
	other.run(t, "CREATE DATABASE "+name+" TEMPLATE "+original)
	t.Cleanup(func() { other.run(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	u.Path = "/" + name
	return &PostgresServer{Container: s.Container, URL: u.String()}
}

// Role creates a role that may log in and has only public permissions. The end of the test drops it with all its objects in this
// database. Role returns the server as seen by the role, and the role's name.
func (s *PostgresServer) Role(t testing.TB) (as *PostgresServer, name string) {
	t.Helper()
	name = "r_" + unique()
	s.run(t, "CREATE ROLE "+name+" LOGIN PASSWORD '"+name+"'")
	t.Cleanup(func() { s.run(t, "DROP OWNED BY "+name+" CASCADE; DROP ROLE "+name) })
	u := s.parseURL(t)
	u.User = url.UserPassword(name, name)
	return &PostgresServer{Container: s.Container, URL: u.String()}, name
}

func (s *PostgresServer) parseURL(t testing.TB) *url.URL {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatalf("env: %v", err)
	}
	return u
}

// run runs SQL on a new connection.
func (s *PostgresServer) run(t testing.TB, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL)
	if err == nil {
		defer conn.Close(context.Background())
		_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
	}
	if err != nil {
		t.Errorf("env: %s: %v", sql, err)
	}
}
