//go:build integration

package env

import (
	"context"
	"errors"
	"path"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/moby/moby/client"
)

// PostgresPair is a primary and its streaming standby.
type PostgresPair struct {
	Primary, Standby *PostgresServer

	peers       string // the network between the two
	standbyName string // on that network
	synchronous string // the level of Synchronous
}

// StartPostgresPair starts a primary and a hot standby that streams from it, for one test. args are passed to both.
func StartPostgresPair(t testing.TB, args ...string) *PostgresPair {
	t.Helper()
	peers, firstFiles, secondFiles := peerNetwork(t), volume(t), volume(t)
	first := postgresSpec(append(pairArgs("second"), args...)...)
	first.name, first.peers, first.aliases = "the primary", peers, []string{"first"}
	first.volumes = []string{firstFiles + ":" + path.Dir(postgresData), secondFiles + ":" + path.Dir(otherData)}
	c := start(t, first)
	primary := &PostgresServer{Container: c, URL: postgresURL(c.Addr)}
	primary.Exec(t, "sh", "-c", "echo 'host replication all all scram-sha-256' >> "+postgresData+"/pg_hba.conf")
	primary.run(t, "SELECT pg_reload_conf()")
	primary.copyToStandby(t)

	second := postgresSpec(append(pairArgs("first"), args...)...)
	second.name, second.peers, second.aliases = "the standby", peers, []string{"second"}
	second.volumes = []string{secondFiles + ":" + path.Dir(postgresData), firstFiles + ":" + path.Dir(otherData)}
	c = start(t, second)
	pair := &PostgresPair{Primary: primary, Standby: &PostgresServer{Container: c, URL: postgresURL(c.Addr)}, peers: peers, standbyName: "second"}
	pair.CatchUp(t)
	return pair
}

// otherData is where a server of a pair sees the data directory of the other one.
const otherData = "/other/pg"

// pairArgs returns the arguments of a server of a pair; peer is the name of the other one.
func pairArgs(peer string) []string {
	return []string{
		"-c", "hot_standby=on", "-c", "wal_retrieve_retry_interval=200ms", "-c", "wal_level=replica", "-c", "max_wal_senders=8",
		"-c", "wal_keep_size=512MB", "-c",
		"primary_conninfo=host=" + peer + " port=5432 user=" + postgresUser + " password=" + postgresPassword + " application_name=standby",
	}
}

// copyToStandby copies a primary to the data directory of its standby, which must not run.
func (s *PostgresServer) copyToStandby(t testing.TB) {
	t.Helper()
	s.BackUp(t, otherData)
	s.Exec(t, "touch", otherData+"/standby.signal")
}

// BackUp writes a base backup of the server to a folder in its container. The backup lacks the log that was written meanwhile. It uses SQL,
// because the images need no extra program then. Only the session that starts such a backup can end it.
func (s *PostgresServer) BackUp(t testing.TB, folder string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		t.Fatalf("env: connecting to Postgres: %v", err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(ctx, "SELECT pg_backup_start('copy', true)"); err != nil {
		t.Fatalf("env: beginning a base backup: %v", err)
	}
	// Files change and disappear meanwhile, which the first tar reports and the log of the database repairs.
	s.Exec(t, "sh", "-c", "rm -rf "+folder+" && mkdir -m 0700 "+folder+
		" && { tar -C "+postgresData+" --exclude=./postmaster.* --exclude=./standby.signal -cf - . || true; } 2>/dev/null | tar -C "+folder+" -xf -")
	var label string
	if err := conn.QueryRow(ctx, "SELECT labelfile FROM pg_backup_stop(false)").Scan(&label); err != nil {
		t.Fatalf("env: ending a base backup: %v", err)
	}
	err = s.ctr.CopyToContainer(ctx, []byte(label), folder+"/backup_label", 0o644)
	if err = errors.Join(err, s.close()); err != nil {
		t.Fatalf("env: writing the backup's label: %v", err)
	}
	s.Exec(t, "chown", "-R", "postgres", folder)
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
	p.synchronous = level
	requireStandby(t, p.Primary, level)
	p.AwaitSynchronous(t)
}

// requireStandby makes a server wait for a standby at each commit, if it is a primary or becomes one.
func requireStandby(t testing.TB, server *PostgresServer, level string) {
	t.Helper()
	for _, sql := range []string{
		"ALTER SYSTEM SET synchronous_standby_names = '*'",
		"ALTER SYSTEM SET synchronous_commit = '" + level + "'",
		"SELECT pg_reload_conf()",
	} {
		server.run(t, sql)
	}
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
		return connect(ctx, cli, p.peers, id, []string{p.standbyName})
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

// FailOver makes the standby the primary. The caller has stopped the old primary, as every failover must, or two servers would accept
// writes. Rejoin makes the old one the standby; until then, the new primary acknowledges nothing if the pair is synchronous.
func (p *PostgresPair) FailOver(t testing.TB) {
	t.Helper()
	if p.synchronous != "" {
		requireStandby(t, p.Standby, p.synchronous) // before its first commit
	}
	p.Promote(t)
	p.Primary, p.Standby = p.Standby, p.Primary
	p.standbyName = map[string]string{"first": "second", "second": "first"}[p.standbyName]
}

// Rejoin replaces the data of the stopped old primary by a base backup of the new one, and starts it as the standby.
func (p *PostgresPair) Rejoin(t testing.TB) {
	t.Helper()
	p.Primary.copyToStandby(t)
	p.Standby.Start(t)
	if p.synchronous != "" {
		p.AwaitSynchronous(t)
	} else {
		p.CatchUp(t)
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
