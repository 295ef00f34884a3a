package main

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver" // sqlite3
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// lockFile holds the write lock of a SQLite store, so that writes wait, until the returned function is called.
func lockFile(t *testing.T, store string) (release func()) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+strings.TrimPrefix(store, "sqlite://")+"?_pragma=busy_timeout(60000)")
	require.NoError(t, err)
	conn, err := db.Conn(context.Background())
	require.NoError(t, err)
	_, err = conn.ExecContext(context.Background(), "begin immediate")
	require.NoError(t, err)
	released := false
	return func() {
		if !released {
			released = true
			_, err := conn.ExecContext(context.Background(), "rollback")
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			require.NoError(t, db.Close())
		}
	}
}

// rawWatch returns a watch of everything by a client that does not reconnect.
type watchOfAll struct{ ended chan error }

func rawWatch(t *testing.T, address string) *watchOfAll {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, conn.Close())
	})
	stream, err := resourcegrpc.NewResourceServiceClient(conn).WatchList(ctx, &resourcepb.WatchListRequest{
		Type: &resourcepb.Type{Group: "*", GroupVersion: "*", Kind: "*"},
	})
	require.NoError(t, err)
	for {
		ev, err := stream.Recv()
		require.NoError(t, err)
		if ev.GetEndOfSnapshot() != nil {
			break
		}
	}
	w := &watchOfAll{ended: make(chan error, 1)}
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				w.ended <- err
				return
			}
		}
	}()
	return w
}

// end waits for the end of the watch and returns its code and text.
func (w *watchOfAll) end(t *testing.T) string {
	t.Helper()
	select {
	case err := <-w.ended:
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	case <-time.After(waitTimeout):
		t.Fatal("the watch did not end")
		return ""
	}
}
