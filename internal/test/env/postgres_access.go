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

// Direct is the same server at its container's own address, where Docker's port proxy does not stand in between: a proxy
// that copies bytes in user space taxes each round trip, which flatters whoever makes few of them. It works where the daemon
// runs on this machine; elsewhere, and for a server given by URL, it is the server as it is.
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

// Database is a database of its own on the same server, dropped at the end of the test: for rights on what belongs to a
// database, and for its settings.
func (s *PostgresServer) Database(t testing.TB) *PostgresServer {
	t.Helper()
	name := "d_" + unique()
	s.run(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { s.run(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	u := s.parsed(t)
	u.Path = "/" + name
	return &PostgresServer{Container: s.Container, URL: u.String()}
}

// Copy makes a copy of this database, to which nobody may be connected, dropped at the end of the test.
func (s *PostgresServer) Copy(t testing.TB) *PostgresServer {
	t.Helper()
	u := s.parsed(t)
	original := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres" // which every server has
	other := &PostgresServer{Container: s.Container, URL: u.String()}
	name := "d_" + unique()
	other.run(t, "CREATE DATABASE "+name+" TEMPLATE "+original)
	t.Cleanup(func() { other.run(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	u.Path = "/" + name
	return &PostgresServer{Container: s.Container, URL: u.String()}
}

// Role makes a role that may log in and has no rights but those of everybody, dropped at the end of the test with all that it
// owns in this database. It returns the server as the role sees it, and the role's name.
func (s *PostgresServer) Role(t testing.TB) (as *PostgresServer, name string) {
	t.Helper()
	name = "r_" + unique()
	s.run(t, "CREATE ROLE "+name+" LOGIN PASSWORD '"+name+"'")
	t.Cleanup(func() { s.run(t, "DROP OWNED BY "+name+" CASCADE; DROP ROLE "+name) })
	u := s.parsed(t)
	u.User = url.UserPassword(name, name)
	return &PostgresServer{Container: s.Container, URL: u.String()}, name
}

func (s *PostgresServer) parsed(t testing.TB) *url.URL {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatalf("env: %v", err)
	}
	return u
}

// run runs SQL on a connection of its own.
func (s *PostgresServer) run(t testing.TB, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
