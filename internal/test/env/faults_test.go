//go:build integration

package env

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestPostgresPair(t *testing.T) {
	t.Parallel()
	pair := StartPostgresPair(t)
	ctx := context.Background()
	if _, err := pair.Primary.Connect(t).Exec(ctx, "CREATE TABLE kept (v int); INSERT INTO kept VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	pair.CatchUp(t)
	standby := pair.Standby.Connect(t)
	if _, err := standby.Exec(ctx, "INSERT INTO kept VALUES (2)"); err == nil {
		t.Error("the standby takes writes")
	}
	pair.Primary.Kill(t)
	pair.FailOver(t)
	var n int
	if err := standby.QueryRow(ctx, "INSERT INTO kept VALUES (2) RETURNING (SELECT count(*) FROM kept)").Scan(&n); err != nil || n != 1 {
		t.Errorf("after the promotion: %d rows before, %v", n, err)
	}
	pair.Rejoin(t)
	if err := query(ctx, pair.Standby.URL, "SELECT count(*) FROM kept WHERE pg_is_in_recovery()", &n); err != nil || n != 2 {
		t.Errorf("on the old primary, now the standby: %d rows, %v", n, err)
	}
}

func TestPostgresSmallDisk(t *testing.T) {
	t.Parallel()
	d := StartPostgresSmallDisk(t, 32)
	ctx := context.Background()
	conn := d.Connect(t)
	fill := func() error {
		_, err := conn.Exec(ctx, "INSERT INTO things SELECT repeat('x', 1000) FROM generate_series(1, 4000)")
		return err
	}
	if _, err := conn.Exec(ctx, "CREATE TABLE things (v text)"); err != nil {
		t.Fatal(err)
	}
	d.Fill(t, 1)
	var pg *pgconn.PgError
	if err := fill(); !errors.As(err, &pg) || pg.Code != "53100" {
		t.Errorf("on a full disk: got %v, expected SQLSTATE 53100", err)
	}
	d.Free(t)
	if err := fill(); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestPostgresSynchronousPair(t *testing.T) {
	t.Parallel()
	pair := StartPostgresPair(t)
	pair.Synchronous(t, "remote_apply")
	ctx := context.Background()
	conn := pair.Primary.Connect(t)
	if _, err := conn.Exec(ctx, "CREATE TABLE kept (v int)"); err != nil {
		t.Fatal(err)
	}
	pair.Separate(t)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "INSERT INTO kept VALUES (1)")
		done <- err
	}()
	waits := func() (n int) {
		if err := query(ctx, pair.Primary.URL, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for waits() == 0 {
		select {
		case err := <-done:
			t.Fatalf("a commit without the standby: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	pair.Reunite(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	pair.AwaitSynchronous(t)
	var n int
	if err := pair.Standby.Connect(t).QueryRow(ctx, "SELECT count(*) FROM kept").Scan(&n); err != nil || n != 1 {
		t.Errorf("the standby has %d rows, %v", n, err)
	}
}

func TestPostgresStallingDisk(t *testing.T) {
	t.Parallel()
	d := StartInterceptedPostgres(t)
	ctx := context.Background()
	conn := d.Connect(t)
	if _, err := conn.Exec(ctx, "CREATE TABLE kept (v int)"); err != nil {
		t.Fatal(err)
	}
	d.Stall(t)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "INSERT INTO kept VALUES (1)")
		done <- err
	}()
	d.AwaitStalled(t)
	var n int
	if err := d.Connect(t).QueryRow(ctx, "SELECT count(*) FROM kept").Scan(&n); err != nil || n != 0 {
		t.Errorf("a read beside the stalled disk: %d rows, %v", n, err)
	}
	select {
	case err := <-done:
		t.Errorf("a commit while the disk stalls: %v", err)
	default:
	}
	d.Unstall(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestPostgresSetClock(t *testing.T) {
	t.Parallel()
	s := StartInterceptedPostgres(t)
	conn := s.Connect(t)
	for _, ahead := range []time.Duration{40 * time.Minute, -40 * time.Minute, 0} {
		s.SetClock(t, ahead)
		var off float64
		err := conn.QueryRow(context.Background(), "SELECT extract(epoch FROM clock_timestamp() - $1)", time.Now()).Scan(&off)
		if err != nil || math.Abs(off-ahead.Seconds()) > 5*60 {
			t.Errorf("the server's clock is off by %v seconds, %v, expected %v", off, err, ahead)
		}
	}
}

func TestPostgresKillProcess(t *testing.T) {
	t.Parallel()
	s := StartPostgres(t)
	ctx := context.Background()
	victim, bystander := s.Connect(t), s.Connect(t)
	if _, err := bystander.Exec(ctx, "CREATE TABLE kept (v int); INSERT INTO kept VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	pid := victim.PgConn().PID()
	if !s.KillProcess(t, pid) {
		t.Fatal("the process was not there")
	}
	for bystander.Ping(ctx) == nil { // all sessions end
		continue
	}
	s.Await(t)
	var n int
	if err := s.Connect(t).QueryRow(ctx, "SELECT count(*) FROM kept").Scan(&n); err != nil || n != 1 {
		t.Errorf("after the crash: %d rows, %v", n, err)
	}
	if s.KillProcess(t, pid) {
		t.Error("the process was there twice")
	}
}

func TestPostgresAccess(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := Postgres(t)
	if err := server.Direct(t).Connect(t).Ping(ctx); err != nil {
		t.Error(err)
	}
	database := server.Database(t)
	as, name := database.Role(t)
	conn := as.Connect(t)
	var user string
	if err := conn.QueryRow(ctx, "SELECT current_user").Scan(&user); err != nil || user != name {
		t.Errorf("connected as %s, expected %s: %v", user, name, err)
	}
	if _, err := conn.Exec(ctx, "CREATE SCHEMA mine"); err == nil {
		t.Error("the role may create schemas")
	}
	if _, err := database.Connect(t).Exec(ctx, "GRANT CREATE ON DATABASE "+database.parseURL(t).Path[1:]+" TO "+name); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "CREATE SCHEMA mine"); err != nil {
		t.Errorf("with the right to: %v", err)
	}
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	b := StartPgBouncer(t, Postgres(t))
	conn := (&PostgresServer{Container: b.Container, URL: b.URL}).Connect(t)
	var pid1, pid2 int
	for _, pid := range []*int{&pid1, &pid2} {
		if err := conn.PgConn().Exec(context.Background(), "SELECT 1").Close(); err != nil {
			t.Fatal(err)
		}
		if err := query(context.Background(), b.URL, "SELECT pg_backend_pid()", pid); err != nil {
			t.Fatal(err)
		}
	}
	if pid1 != pid2 {
		t.Errorf("two connections in turn got two servers, %d and %d: nothing is pooled", pid1, pid2)
	}
}

func TestEtcdCluster(t *testing.T) {
	t.Parallel()
	c := StartEtcdCluster(t)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cli := c.Client(t)
	put := func(value string) {
		t.Helper()
		for {
			attempt, stop := context.WithTimeout(ctx, 5*time.Second)
			_, err := cli.Put(attempt, "k", value)
			stop()
			if err == nil {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("put %s: %v", value, err)
			}
		}
	}
	put("1")

	cut := c.Leader(t)
	cut.Disconnect(t)
	put("2")
	// The disconnected member answers its clients from its old state.
	old, err := cut.Client(t).Get(ctx, "k", clientv3.WithSerializable())
	if err != nil || string(old.Kvs[0].Value) != "1" {
		t.Errorf("the disconnected member: %v, %v", old, err)
	}
	if l := c.Leader(t); l == cut {
		t.Error("the disconnected member is still the leader")
	}
	cut.Reconnect(t)
	cut.Await(t)
	got, err := cut.Client(t).Get(ctx, "k")
	if err != nil || string(got.Kvs[0].Value) != "2" {
		t.Errorf("after the partition: %v, %v", got, err)
	}

	down := c.Members[0]
	down.Kill(t)
	put("3")
	down.Start(t)
	got, err = down.Client(t).Get(ctx, "k")
	if err != nil || string(got.Kvs[0].Value) != "3" {
		t.Errorf("after the crash: %v, %v", got, err)
	}
}
