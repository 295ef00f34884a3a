package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// peak returns the peak memory of a server, in bytes.
func (s *serverProcess) peak() (bytes int64) {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(s.t, err)
	_, rest, found := strings.Cut(string(text), "VmHWM:")
	require.True(s.t, found)
	_, err = fmt.Sscan(rest, &bytes)
	require.NoError(s.t, err)
	return bytes << 10
}

// Clients that watch large values without reading delay neither writers nor other watches, and the server buffers a bounded amount for
// them. When they read at last, they get everything. After the first values the log of recent changes and all buffers are full (32 MiB and a
// page of history for each watch). Further values then need no more memory.
func TestServeEtcdSlowWatches(t *testing.T) {
	t.Parallel()
	const first, values, slow, size = 40, 56, 3, 1000 << 10
	ctx, cancel := context.WithTimeout(t.Context(), 4*waitTimeout)
	defer cancel()
	s := serveEtcd(t, "sqlite:"+filepath.Join(t.TempDir(), "keys.db"))
	c := etcdClient(t, s, nil)
	var streams []pb.Watch_WatchClient
	for range slow { // each with its own connection, like separate clients
		stream, err := pb.NewWatchClient(etcdClient(t, s, nil).ActiveConnection()).Watch(ctx)
		require.NoError(t, err)
		request := &pb.WatchCreateRequest{Key: []byte("v/"), RangeEnd: []byte("v0"), StartRevision: 1, PrevKv: true}
		require.NoError(t, stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}}))
		streams = append(streams, stream)
	}
	w := c.Watch(ctx, "v/", clientv3.WithPrefix())
	value := strings.Repeat("x", size)
	full := int64(0)
	for i := range values {
		if i == first {
			full = s.peak()
		}
		_, err := c.Put(ctx, fmt.Sprint("v/", i%10), value)
		require.NoError(t, err)
		for seen := 0; seen == 0; {
			answer, open := <-w
			require.True(t, open, "the watch has ended: %v", ctx.Err())
			require.NoError(t, answer.Err())
			seen += len(answer.Events)
		}
	}
	growth := s.peak() - full
	require.Less(t, growth, int64(slow*(values-first)*size*3), "the memory grows with the unread data")
	t.Logf("the memory grew by %d MiB from %d MiB while %d watches did not read %d MiB each", growth>>20, full>>20, slow, 2*(values-first)*size>>20)
	for _, stream := range streams[:1] {
		for n, last := 0, int64(0); n < values; {
			answer, err := stream.Recv()
			require.NoError(t, err)
			for _, ev := range answer.Events {
				require.Equal(t, fmt.Sprint("v/", n%10), string(ev.Kv.Key))
				require.Greater(t, ev.Kv.ModRevision, last)
				last = ev.Kv.ModRevision
				n++
			}
		}
	}
}
