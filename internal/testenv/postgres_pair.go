//go:build integration

package testenv

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresPair is a primary and its streaming standby.
type PostgresPair struct {
	Primary, Standby *PostgresServer
}

// StartPostgresPair starts a primary and a hot standby that streams from it, for this test alone. args go to both.
func StartPostgresPair(t testing.TB, args ...string) *PostgresPair {
	t.Helper()
	peers, files := peerNetwork(t), volume(t)
	const copied = "/standby/pg"

	first := postgresSpec(append([]string{"-c", "wal_level=replica", "-c", "max_wal_senders=8", "-c", "wal_keep_size=512MB"}, args...)...)
	first.name, first.peers, first.aliases, first.volumes = "the primary", peers, []string{"primary"}, []string{files + ":/standby"}
	c := start(t, first)
	primary := &PostgresServer{Container: c, URL: postgresURL(c.Addr)}
	primary.Exec(t, "sh", "-c", "echo 'host replication all all scram-sha-256' >> "+postgresData+"/pg_hba.conf")

	// A base backup by hand: the session that begins it has to end it, and the images need no program for it.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn := primary.Connect(t)
	var label string
	if _, err := conn.Exec(ctx, "SELECT pg_reload_conf(), pg_backup_start('standby', true)"); err != nil {
		t.Fatalf("testenv: beginning a base backup: %v", err)
	}
	primary.Exec(t, "sh", "-c", "cp -a "+postgresData+" "+copied+" && rm -f "+copied+"/postmaster.pid "+copied+"/postmaster.opts")
	if err := conn.QueryRow(ctx, "SELECT labelfile FROM pg_backup_stop(false)").Scan(&label); err != nil {
		t.Fatalf("testenv: ending a base backup: %v", err)
	}
	err := c.ctr.CopyToContainer(ctx, []byte(label), copied+"/backup_label", 0o644)
	if err = errors.Join(err, c.close()); err != nil {
		t.Fatalf("testenv: writing the backup's label: %v", err)
	}
	primary.Exec(t, "sh", "-c", "touch "+copied+"/standby.signal && chown -R postgres "+copied)

	second := postgresSpec(append([]string{
		"-c", "hot_standby=on", "-c", "wal_level=replica", "-c", "max_wal_senders=8", "-c",
		"primary_conninfo=host=primary port=5432 user=" + postgresUser + " password=" + postgresPassword + " application_name=standby",
	}, args...)...)
	second.name, second.peers, second.aliases = "the standby", peers, []string{"standby"}
	second.volumes = []string{files + ":/var/lib/postgresql/data"}
	c = start(t, second)
	pair := &PostgresPair{Primary: primary, Standby: &PostgresServer{Container: c, URL: postgresURL(c.Addr)}}
	pair.CatchUp(t)
	return pair
}

// CatchUp waits until the standby has replayed what the primary holds now.
func (p *PostgresPair) CatchUp(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var lsn string
	if err := query(ctx, p.Primary.URL, "SELECT pg_current_wal_lsn()::text", &lsn); err != nil {
		t.Fatalf("testenv: the primary's position: %v", err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var caughtUp bool
		err := query(ctx, p.Standby.URL, "SELECT coalesce(pg_last_wal_replay_lsn() >= '"+lsn+"'::pg_lsn, false)", &caughtUp)
		if err == nil && caughtUp {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("testenv: the standby does not catch up (%v)\n%s", err, p.Standby.tail())
		case <-tick.C:
		}
	}
}

// Promote makes the standby a primary of its own and returns when it takes writes. The old primary goes on unless the
// test stops it.
func (p *PostgresPair) Promote(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var promoted bool
	if err := query(ctx, p.Standby.URL, "SELECT pg_promote(true, 120)", &promoted); err != nil || !promoted {
		t.Fatalf("testenv: promoting the standby: %t, %v", promoted, err)
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
