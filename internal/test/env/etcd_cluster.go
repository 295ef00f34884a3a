//go:build integration

package env

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// EtcdCluster is a cluster of three members.
type EtcdCluster struct {
	// EtcdServer has all endpoints in its Endpoint, separated by commas, and no container of its own.
	*EtcdServer

	Members []*EtcdMember
}

// EtcdMember is one member of a cluster.
type EtcdMember struct {
	*EtcdServer

	name, peers string
}

// StartEtcdCluster starts three members for one test. flags are passed to each.
func StartEtcdCluster(t testing.TB, flags ...string) *EtcdCluster {
	t.Helper()
	peers := peerNetwork(t)
	names := []string{"m1", "m2", "m3"}
	var initial, endpoints []string
	for _, n := range names {
		initial = append(initial, n+"=http://"+n+":2380")
	}
	cluster := &EtcdCluster{}
	for _, n := range names {
		s := etcdSpec(append([]string{
			"--name=" + n, "--listen-peer-urls=http://0.0.0.0:2380", "--initial-advertise-peer-urls=http://" + n + ":2380",
			"--initial-cluster=" + strings.Join(initial, ","), "--initial-cluster-token=" + peers,
		}, flags...)...)
		s.name, s.peers, s.aliases = "etcd member "+n, peers, []string{n}
		s.wait = false // a member accepts requests only when a majority runs
		c := start(t, s)
		cluster.Members = append(cluster.Members, &EtcdMember{
			EtcdServer: &EtcdServer{Container: c, Endpoint: c.Addr}, name: n, peers: peers,
		})
		endpoints = append(endpoints, c.Addr)
	}
	for _, m := range cluster.Members {
		m.Await(t)
	}
	all := strings.Join(endpoints, ",")
	cluster.EtcdServer = &EtcdServer{Container: &Container{Addr: all}, Endpoint: all}
	return cluster
}

// Disconnect separates the member from the others by a network partition. Its clients still reach it.
func (m *EtcdMember) Disconnect(t testing.TB) {
	t.Helper()
	m.do(t, "disconnect", func(ctx context.Context, cli client.APIClient, id string) error {
		_, err := cli.NetworkDisconnect(ctx, m.peers, client.NetworkDisconnectOptions{Container: id, Force: true})
		return err
	})
}

// Reconnect ends the partition. Await waits until the member is part of the cluster again.
func (m *EtcdMember) Reconnect(t testing.TB) {
	t.Helper()
	m.do(t, "reconnect", func(ctx context.Context, cli client.APIClient, id string) error {
		return connect(ctx, cli, m.peers, id, []string{m.name})
	})
}

// Leader returns the leader of the cluster. It waits until all members that answer agree.
func (c *EtcdCluster) Leader(t testing.TB) *EtcdMember {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		leader, err := c.leader(ctx)
		if err == nil {
			return leader
		}
		select {
		case <-ctx.Done():
			t.Fatalf("env: no leader: %v", err)
		case <-tick.C:
		}
	}
}

func (c *EtcdCluster) leader(ctx context.Context) (*EtcdMember, error) {
	votes, answers := map[uint64]int{}, 0
	byID := map[uint64]*EtcdMember{}
	for _, m := range c.Members {
		status, err := m.status(ctx)
		if err != nil {
			continue
		}
		answers++
		byID[status.Header.MemberId] = m
		votes[status.Leader]++
	}
	for id, n := range votes {
		// A disconnected member may still consider itself the leader, so a majority must agree.
		if m := byID[id]; m != nil && n > len(c.Members)/2 {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no majority of %d members reports the same leader; %d answered", len(c.Members), answers)
}

func (s *EtcdServer) status(ctx context.Context) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	defer cli.Close()
	return cli.Status(ctx, s.Endpoint)
}
