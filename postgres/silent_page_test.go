//go:build integration

package postgres

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// lossyConn drops everything from a statement of a page on, as a network does that has lost a connection.
type lossyConn struct {
	net.Conn
	armed         *atomic.Bool // the next page is lost, with its connection
	inside        bool         // the first statement that is lost is inside the page's transaction, not its begin
	begins        bool         // the begin of a page was sent
	inTransaction bool         // the server waits inside a transaction
	lost          bool
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if ready := []byte("Z\x00\x00\x00\x05"); n > len(ready) && bytes.Equal(b[n-len(ready)-1:n-1], ready) {
		c.inTransaction = b[n-1] == 'T'
	}
	return n, err
}

func (c *lossyConn) Write(b []byte) (int, error) {
	isNext := c.begins && c.inTransaction
	if bytes.Contains(b, []byte(repeatableRead)) {
		c.begins, isNext = true, !c.inside
	}
	if isNext && c.armed.CompareAndSwap(true, false) {
		c.lost = true
	}
	if c.lost {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// overConnections opens a handle whose connections are wrapped.
func overConnections(t *testing.T, ctx context.Context, server *env.PostgresServer, o *Options, wrap func(net.Conn) net.Conn) *Backend {
	t.Helper()
	config, err := pgxpool.ParseConfig(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
	config.MaxConns = 4
	Prepare(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b, err := New(ctx, pool, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// TestSnapshotOnSilentConnection starts a watch whose connection becomes silent while the snapshot is read. The read is repeated on another
// connection, and does not hold the connections of watches that catch up until its deadline.
func TestSnapshotOnSilentConnection(t *testing.T) {
	t.Parallel()
	for name, inside := range map[string]bool{"at the begin": false, "inside the transaction": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshotOnSilentConnection(t, inside)
		})
	}
}

func snapshotOnSilentConnection(t *testing.T, inside bool) {
	t.Helper()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	var armed atomic.Bool
	b := overConnections(t, ctx, server, &Options{Schema: server.Schema(t), NoListen: true, Poll: time.Hour, Timeout: time.Minute}, func(conn net.Conn) net.Conn {
		return &lossyConn{Conn: conn, armed: &armed, inside: inside}
	})
	if _, err := b.WriteCAS(ctx, orderResource("one", "")); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	w, err := b.WatchList(ctx, orderType, &resourcepb.Tenancy{}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if armed.Load() {
		t.Error("no connection was lost")
	}
	if event := fixture.Next(t, w); event.GetUpsert() == nil {
		t.Errorf("the first event is %v, expected the resource", event)
	}
}
