//go:build integration

package env

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/moby/moby/client"
)

// PostgresPair is a primary and its streaming standby.
type PostgresPair struct {
	Primary, Standby *PostgresServer

	peers string // the network between the two
}

// StartPostgresPair starts a primary and a hot standby that streams from it, for one test. args are passed to both.
func StartPostgresPair(t testing.TB, args ...string) *PostgresPair {
	t.Helper()
	peers, files := peerNetwork(t), volume(t)
	const copied = "/standby/pg"

	first := postgresSpec(append([]string{"-c", "wal_level=replica", "-c", "max_wal_senders=8", "-c", "wal_keep_size=512MB"}, args...)...)
	first.name, first.peers, first.aliases, first.volumes = "the primary", peers, []string{"primary"}, []string{files + ":/standby"}
	c := start(t, first)
	primary := &PostgresServer{Container: c, URL: postgresURL(c.Addr)}
	primary.Exec(t, "sh", "-c", "echo 'host replication all all scram-sha-256' >> "+postgresData+"/pg_hba.conf")

	// This is a base backup by SQL: only the session that starts it can end it, and the images need no extra program.
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn := primary.Connect(t)
	var label string
	if _, err := conn.Exec(ctx, "SELECT pg_reload_conf(), pg_backup_start('standby', true)"); err != nil {
		t.Fatalf("env: beginning a base backup: %v", err)
	}
	primary.Exec(t, "sh", "-c", "cp -a "+postgresData+" "+copied+" && rm -f "+copied+"/postmaster.pid "+copied+"/postmaster.opts")
	if err := conn.QueryRow(ctx, "SELECT labelfile FROM pg_backup_stop(false)").Scan(&label); err != nil {
		t.Fatalf("env: ending a base backup: %v", err)
	}
	err := c.ctr.CopyToContainer(ctx, []byte(label), copied+"/backup_label", 0o644)
	if err = errors.Join(err, c.close()); err != nil {
		t.Fatalf("env: writing the backup's label: %v", err)
	}
	primary.Exec(t, "sh", "-c", "touch "+copied+"/standby.signal && chown -R postgres "+copied)

	second := postgresSpec(append([]string{
		"-c", "hot_standby=on", "-c", "wal_retrieve_retry_interval=200ms", "-c", "wal_level=replica", "-c", "max_wal_senders=8", "-c",
		"primary_conninfo=host=primary port=5432 user=" + postgresUser + " password=" + postgresPassword + " application_name=standby",
	}, args...)...)
	second.name, second.peers, second.aliases = "the standby", peers, []string{"standby"}
	second.volumes = []string{files + ":/var/lib/postgresql/data"}
	c = start(t, second)
	pair := &PostgresPair{Primary: primary, Standby: &PostgresServer{Container: c, URL: postgresURL(c.Addr)}, peers: peers}
	pair.CatchUp(t)
	return pair
}

// CatchUp waits until the standby has replayed the primary's present state.
func (p *PostgresPair) CatchUp(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var lsn string
	if err := query(ctx, p.Primary.URL, "SELECT pg_current_wal_lsn()::text", &lsn); err != nil {
		t.Fatalf("env: the primary's position: %v", err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var caughtUp bool
		err := query(ctx, p.Standby.URL, "SELECT coalesce(pg_catalog.pg_last_wal_replay_lsn() >= '"+lsn+"'::pg_lsn, false)", &caughtUp)
		if err == nil && caughtUp {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("env: the standby does not catch up (%v)\n%s", err, p.Standby.tail())
		case <-tick.C:
		}
	}
}

// Synchronous makes the primary wait for the standby at each commit: level is the server's synchronous_commit. It returns when the
// standby is synchronous.
func (p *PostgresPair) Synchronous(t testing.TB, level string) {
	t.Helper()
	for _, sql := range []string{
		"ALTER SYSTEM SET synchronous_standby_names = '*'",
		"ALTER SYSTEM SET synchronous_commit = '" + level + "'",
		"SELECT pg_reload_conf()",
	} {
		p.Primary.run(t, sql)
	}
	p.AwaitSynchronous(t)
}

// AwaitSynchronous waits until the primary has its synchronous standby.
func (p *PostgresPair) AwaitSynchronous(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		err := query(ctx, p.Primary.URL, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'", &n)
		if err == nil && n > 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("env: the standby is not synchronous (%v)\n%s", err, p.Standby.tail())
		case <-tick.C:
		}
	}
}

// Separate disconnects the standby from its primary, and returns when the primary has detected it. Clients reach both.
func (p *PostgresPair) Separate(t testing.TB) {
	t.Helper()
	p.Standby.do(t, "disconnect", func(ctx context.Context, cli client.APIClient, id string) error {
		_, err := cli.NetworkDisconnect(ctx, p.peers, client.NetworkDisconnectOptions{Container: id, Force: true})
		return err
	})
	// A connection over a dead network stays until a timeout; this ends it at once.
	p.Primary.run(t, "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_replication")
}

// Reunite ends the separation. The standby reconnects by itself, after a few seconds.
func (p *PostgresPair) Reunite(t testing.TB) {
	t.Helper()
	p.Standby.do(t, "reconnect", func(ctx context.Context, cli client.APIClient, id string) error {
		return connect(ctx, cli, p.peers, id, []string{"standby"})
	})
}

// Promote makes the standby a primary and returns when it accepts writes. The old primary continues unless the test stops it.
func (p *PostgresPair) Promote(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var promoted bool
	if err := query(ctx, p.Standby.URL, "SELECT pg_promote(true, 120)", &promoted); err != nil || !promoted {
		t.Fatalf("env: promoting the standby: %t, %v", promoted, err)
	}
}

func query(ctx context.Context, dsn, sql string, result any) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	return conn.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(result)
}
