//go:build integration

package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/torture"
	"github.com/ashlar-dev/storage/postgres"
)

// TestTorture injects all faults of a lone server.
func TestTorture(t *testing.T) { torture.Run(t, "postgres", tortureServer) }

func tortureServer(t *testing.T, o faults.Options) {
	server := env.StartInterceptedPostgres(t)
	storeURL := server.StoreURL(t)
	h := torture.ProxyHarness(t, storeURL, server.Addr)
	h.Faults = append(h.Faults,
		torture.Once(faults.CrashSession, 2, func() { crashSession(t, server.PostgresServer) }),
		torture.Once(faults.Restart, 1, func() { server.Restart(t) }),
		torture.Once(faults.KillServer, 1, func() { server.Kill(t); server.Start(t) }),
		torture.Lasting(faults.Pause, 1, func() { server.Freeze(t) }, func() { server.Wake(t) }),
		faults.Fault{Kind: faults.SkewClock, Weight: 2, Touches: "server", Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
			server.SetClock(t, time.Duration(random.Int64N(int64(80*time.Minute)))-40*time.Minute)
			return func(context.Context) error { server.SetClock(t, 0); return nil }, nil
		}},
		forgetful(storeURL),
		torture.Long(torture.Lasting(faults.StallDisk, 1, func() { server.Stall(t) }, func() { server.Unstall(t) })),
	)
	torture.Exempt(&h, "a lone server has no peer to lose", faults.StandbyAway, faults.QuorumAway, faults.ChangeLeader)
	torture.Exempt(&h, "TestTortureFullDisk does it", faults.FillDisk)
	faults.Test(t, h, o)
}

// crashSession kills one of the server's sessions, so that it ends all of them and recovers.
func crashSession(t *testing.T, server *env.PostgresServer) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.URL)
	if err != nil {
		return // it is still starting after the last crash
	}
	var pid uint32
	err = conn.QueryRow(ctx, "select pid from pg_stat_activity where application_name = 'ashlar' order by random() limit 1").Scan(&pid)
	_ = conn.Close(ctx) // the server is about to be killed
	if err == nil {
		server.KillProcess(t, pid)
		server.Await(t)
	}
}

// forgetful opens a handle that deletes old history, for as long as it is open.
func forgetful(storeURL string) faults.Fault {
	return faults.Fault{Kind: faults.Compact, Weight: 2, Touches: "server", Hold: 3 * time.Second, Inject: func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) {
		for {
			b, err := postgres.OpenForgetful(ctx, storeURL, 300*time.Millisecond)
			if err == nil {
				return func(context.Context) error { return b.Close() }, nil
			}
			if !errors.Is(err, storage.ErrInconsistent) || ctx.Err() != nil {
				return nil, err
			}
		}
	}}
}
