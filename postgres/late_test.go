//go:build integration

package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestClockStep steps a clock after a session has compared the program's with the server's. Writes of every kind detect it and
// succeed.
func TestClockStep(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURLIn(t, server.Schema(t), "pool_max_conns=1"))
	res := &resourcepb.Resource{Id: &resourcepb.ID{
		Uid: "uid", Name: "one", Type: &resourcepb.Type{Group: "g", GroupVersion: "v1", Kind: "Kind"}, Tenancy: &resourcepb.Tenancy{},
	}}
	step := func() {
		t.Helper()
		conn, err := b.handle.database.main.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		b.handle.database.sessions.of(conn.Conn()).skew -= time.Hour
	}
	res, err := b.WriteCAS(ctx, res)
	if err != nil {
		t.Fatal(err)
	}
	step()
	res, err = b.WriteCAS(ctx, res)
	if err != nil {
		t.Fatalf("an update after the clock's step: %v", err)
	}
	step()
	if err = b.DeleteCAS(ctx, res.Id, res.Version); err != nil {
		t.Fatalf("a deletion after the clock's step: %v", err)
	}
}
